// Command dashboards writes Grafana's dashboards: dashboards DIR.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farlog/farlog/pkg/internal/dashboard"
)

func main() {
	for _, one := range dashboard.All() {
		raw, err := one.JSON()
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], one.Name+".json"), raw, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}
