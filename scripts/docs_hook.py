"""docs_hook.py -- mkdocs: links to files of the tree that are no pages become links to their text on the forge."""
import posixpath
import re

SOURCE = "https://github.com/farlog/farlog/blob/main/"
LINK = re.compile(r"\]\(((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, **_):
    def resolve(match):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match[1]))
        if path.startswith("docs/"):
            return match[0]
        return "](" + SOURCE + path + (match[2] or "") + ")"

    return LINK.sub(resolve, markdown)
