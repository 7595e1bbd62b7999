package export

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/farlog/farlog/pkg/query"
)

//go:embed cover.html
var coverText string

var coverTemplate = template.Must(template.New("cover").Funcs(template.FuncMap{
	"plain": func(text string) string { return query.Escape([]byte(text)) },
	"or": func(text, other string) string {
		if text == "" {
			return other
		}
		return text
	},
}).Parse(coverText))

// writeCover writes one page that needs no other file: what was asked, what is in, what is missing, by whom and when.
func writeCover(to io.Writer, b Bundle) error { return coverTemplate.Execute(to, b) }
