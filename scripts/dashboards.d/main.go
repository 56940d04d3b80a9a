// Reads dashboards strictly as Grafana's own types, and checks the values that its schema constrains.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var board dashboard.Dashboard
	var asked struct {
		Panels []struct {
			Title   string
			Targets []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		return err
	}
	// Where nothing is wrong, these are errors without a text.
	for _, err := range []error{board.UnmarshalJSONStrict(text), board.Validate()} {
		if err != nil && err.Error() != "" {
			return err
		}
	}
	// The type of a panel takes any query.
	for _, panel := range asked.Panels {
		for _, target := range panel.Targets {
			var query prometheus.Dataquery
			if err := query.UnmarshalJSONStrict(target); err != nil && err.Error() != "" {
				return fmt.Errorf("`%s`: %w", panel.Title, err)
			}
		}
	}
	return nil
}

func main() {
	// Only the kinds in use: to register all compiles a hundred packages.
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(heatmap.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
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
