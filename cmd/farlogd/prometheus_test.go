//go:build cgo

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// The Prometheus that is shipped scrapes, at the ports of their defaults, the roles that a fabric has. One that there
// may not be fires FarlogDown.
func TestPrometheus_ScrapesWhatRuns(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Jobs []struct {
			Name    string `json:"job_name"`
			Statics []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(raw, &shipped); err != nil {
		t.Fatal(err)
	}
	var scraped []string
	for _, job := range shipped.Jobs {
		for _, static := range job.Statics {
			for _, target := range static.Targets {
				scraped = append(scraped, job.Name+" "+target)
			}
		}
	}
	want := []string{
		"farlog-control 127.0.0.1:9464", "farlog-target 127.0.0.1:9465", "farlog-drain 127.0.0.1:9466",
		"farlog-host 127.0.0.1:9467",
	}
	if !slices.Equal(scraped, want) {
		t.Errorf("it scrapes %q, expected %q", scraped, want)
	}
}
