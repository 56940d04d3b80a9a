// Reads dashboards strictly as Grafana's own types, and checks the values that its schema constrains.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var board dashboard.Dashboard
	// Where nothing is wrong, these are errors without a text.
	for _, err := range []error{board.UnmarshalJSONStrict(text), board.Validate()} {
		if err != nil && err.Error() != "" {
			return err
		}
	}
	return nil
}

func main() {
	plugins.RegisterDefaultPlugins()
	wrong := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(path), err)
			wrong = true
			continue
		}
		fmt.Printf("%s is of Grafana's schema\n", filepath.Base(path))
	}
	if wrong {
		os.Exit(4)
	}
}
