// Command pages writes the reference pages that are made of other files: alerts.md and alerts-operations.md of
// Prometheus' rules, and the table in measurements.md of bench.json. Usage: pages [-check] ROOT. With -check it changes
// nothing and ends with 1 when one is old.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/farlog/farlog/pkg/markdown"
)

func main() {
	isCheck := flag.Bool("check", false, "change nothing; end with 1 when a page is old")
	flag.Parse()
	if err := run(flag.Arg(0), *isCheck); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(root string, isCheck bool) error {
	pages := map[string]func(root string) ([]byte, error){
		"alerts.md": alertsOfStreams, "alerts-operations.md": alertsOfOperations, "measurements.md": measurements,
	}
	var errs []error
	for name, made := range pages {
		text, err := made(root)
		if err == nil {
			err = put(filepath.Join(root, "docs", "reference", name), text, isCheck)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func put(path string, text []byte, isCheck bool) error {
	if !isCheck {
		return os.WriteFile(path, text, 0o644)
	}
	present, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(present, text) {
		err = fmt.Errorf("%s is not what its source makes: run make generate", path)
	}
	return err
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// streamGroups are the groups of rules about streams; the others are on a page of their own.
var streamGroups = []string{"farlog-lag", "farlog-writers", "farlog-members", "farlog-drains"}

func alertsOfStreams(root string) ([]byte, error) {
	return alerts(root, "Alerts", "Of media, stores, the control plane and hosts: [alerts of "+
		"operations](alerts-operations.md).", true)
}

func alertsOfOperations(root string) ([]byte, error) {
	return alerts(root, "Alerts of operations", "Of streams: [alerts](alerts.md).", false)
}

func alerts(root, title, others string, isOfStreams bool) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "prometheus", "farlog.rules.yml"))
	if err != nil {
		return nil, err
	}
	var rules ruleFile
	if err := yaml.Unmarshal(raw, &rules); err != nil {
		return nil, err
	}
	var page bytes.Buffer
	page.WriteString(
		"# " + title + "\n\nGenerated from deploy/prometheus/farlog.rules.yml by `make generate`; do not " +
			"edit.\n\n" +
			markdown.Fill("How to load them: [monitor](../how-to/monitor.md). How to act on one: [read an "+
				"alert](../how-to/read-an-alert.md). "+others, "", ""),
	)
	for _, group := range rules.Groups {
		if slices.Contains(streamGroups, group.Name) != isOfStreams {
			continue
		}
		isFirst := true
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			if isFirst {
				fmt.Fprintf(&page, "\n## %s\n\n", group.Name)
				isFirst = false
			}
			held := "at once"
			if rule.For != "" {
				held = "for " + rule.For
			}
			page.WriteString(markdown.Fill(fmt.Sprintf("**%s** (%s, %s): `%s`", rule.Alert, rule.Labels["severity"],
				held,
				strings.Join(strings.Fields(rule.Expr), " ")), "- ", "  "))
			page.WriteString(markdown.Fill(rule.Annotations["summary"]+". "+rule.Annotations["description"], "  - ",
				"    "))
		}
	}
	return page.Bytes(), nil
}

// measured is one line of what make bench writes.
type measured struct {
	Name    string   `json:"name"`
	Ours    float64  `json:"ours"`
	Floor   *float64 `json:"floor"`
	Unit    string   `json:"unit"`
	Wanted  string   `json:"wanted"`
	Note    string   `json:"note"`
	Machine string   `json:"machine"`
	Date    string   `json:"date"`
	Command string   `json:"command"`
}

const tableMark = "<!-- The rest is made of bench.json by make generate. -->\n"

func measurements(root string) ([]byte, error) {
	folder := filepath.Join(root, "docs", "reference")
	page, err := os.ReadFile(filepath.Join(folder, "measurements.md"))
	if err != nil {
		return nil, err
	}
	head, _, isMarked := bytes.Cut(page, []byte(tableMark))
	if !isMarked {
		return nil, fmt.Errorf("measurements.md: expected the line %q behind the method", strings.TrimSpace(tableMark))
	}
	raw, err := os.ReadFile(filepath.Join(folder, "bench.json"))
	if err != nil {
		return nil, err
	}
	made := bytes.NewBuffer(append(head, tableMark...))
	run := ""
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var one measured
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("bench.json: %q: %w", lines.Text(), err)
		}
		if command := one.Command; command == "" {
			one.Command = "make bench"
		}
		if this := fmt.Sprintf("`%s`, %s, on %s.", one.Command, one.Date, one.Machine); this != run {
			run = this
			fmt.Fprintf(made, "\n%s\n| case | ours | floor | ratio | wanted |\n|---|---|---|---|---|\n",
				markdown.Fill(run, "", ""))
		}
		made.WriteString(row(one))
	}
	return made.Bytes(), lines.Err()
}

func row(one measured) string {
	floor, ratio := "", ""
	if one.Floor != nil && *one.Floor > 0 {
		floor, ratio = fmt.Sprintf("%g %s", *one.Floor, one.Unit), fmt.Sprintf("%.2f", one.Ours / *one.Floor)
	}
	return fmt.Sprintf("| `%s` | %g %s | %s | %s | %s |\n", one.Name, one.Ours, one.Unit, floor, ratio, one.Wanted)
}
