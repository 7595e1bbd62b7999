package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newRouteCommand(env *environment) *cobra.Command {
	return newGroup("route", "Create, list and delete routes: one append to several streams",
		newRouteCreateCommand(env), newRouteListCommand(env), newRouteShowCommand(env), newRouteDeleteCommand(env))
}

func newRouteCreateCommand(env *environment) *cobra.Command {
	var legs []string
	isDryRun := false
	cmd := &cobra.Command{
		Use:   "create NAME --leg STREAM[,WORD=VALUE...]...",
		Short: "Create a route; the same command again changes nothing",
		Long: `Creates a route: one append to it goes to every leg whose classes and criticality select the record.
Options of a leg, after its stream:

  class=1-3         only these classes; may be repeated
  criticality=2     only records at least so critical
  level=persistent  what an acknowledgement waits for (default: the stream's level)
  optional          delays and fails no acknowledgement
  policy=spill      what becomes of a record that the stream does not take: fail (required legs), spill, drop
(optional legs)
  buffer=64MiB      size of the spill on the writer's host, or of the memory of a leg that drops
  deadline=1ms of the append to this leg (default: the stream's)

In place of a stream, route=NAME includes the legs of another route. farlog apply changes a route, and creates those
that a file declares.`,
		Example: "  farlog route create desk7/all --leg desk7/orders --leg " +
			"site2/orders,optional,policy=spill,criticality=2",
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := routeOf(args[0], legs)
			if err != nil {
				return err
			}
			return createRoute(cmd.Context(), env, spec, isDryRun)
		},
	}
	cmd.Flags().StringArrayVar(&legs, "leg", nil,
		"a `leg`: a stream, or route=NAME, and words with commas; may be repeated")
	cmd.Flags().BoolVar(&isDryRun, "dry-run", false, "say what would be created; change nothing")
	return cmd
}

// routeOf makes a route of legs in words, each with a rule of its own.
func routeOf(name string, legs []string) (*api.RouteSpec, error) {
	if len(legs) == 0 {
		return nil, usageErrorf("route create: expected at least one --leg STREAM")
	}
	spec := &api.RouteSpec{Name: name}
	for _, text := range legs {
		rule, err := ruleOfLeg(text)
		if err != nil {
			return nil, usageErrorf("--leg %q: %s", text, err)
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec, nil
}

func ruleOfLeg(text string) (*api.RouteRule, error) {
	words := strings.Split(text, ",")
	rule, leg := new(api.RouteRule), &api.RouteLeg{Stream: words[0]}
	if route, ok := strings.CutPrefix(words[0], "route="); ok {
		rule.Route = route
	} else {
		rule.Legs = append(rule.Legs, leg)
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if err := readLegWord(rule, leg, name, value); err != nil {
			return nil, fmt.Errorf("%s: %s", word, ruleOf(err))
		}
	}
	return rule, nil
}

func readLegWord(rule *api.RouteRule, leg *api.RouteLeg, name, value string) (err error) {
	switch name {
	case "class":
		one, err := parseClassRange(value)
		rule.Classes = append(rule.Classes, one)
		return err
	case "criticality":
		least, err := readCriticality(value)
		rule.CriticalityMin = uint32(least)
		return err
	}
	if rule.Route != "" {
		return fmt.Errorf("expected class=N or criticality=N behind a route")
	}
	if name == "optional" {
		leg.Optional = true
		if value != "" {
			return fmt.Errorf("expected optional without a value")
		}
		return nil
	}
	for _, field := range legFields {
		if field.key == name && name != "stream" {
			return field.set(leg.ProtoReflect(), value)
		}
	}
	return fmt.Errorf("expected class, criticality, level, optional, policy, buffer or deadline")
}

func createRoute(ctx context.Context, env *environment, spec *api.RouteSpec, isDryRun bool) error {
	created, err := ask(ctx, env, "", &api.CreateRouteRequest{Spec: spec, DryRun: isDryRun},
		(*controlClient).CreateRoute)
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(created)
	}
	verb := "exists already"
	if created.Created {
		verb = map[bool]string{true: "would be created", false: "created"}[isDryRun]
	}
	fmt.Fprintf(env.stdout, "route %s %s\n", spec.Name, verb)
	return nil
}

func newRouteListCommand(env *environment) *cobra.Command {
	stream := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the routes",
		Args:  exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := listAll(cmd.Context(), env, &api.ListRoutesRequest{Stream: stream}, (*controlClient).ListRoutes)
			if err != nil {
				return err
			}
			return env.writeTable(all, "NAME\tRULES\tSELECTS", "", func(table *tabwriter.Writer) {
				for _, route := range all.Routes {
					tableRow(table, "%s\t%d\t%s\n", route.Spec.Name, len(route.Spec.Rules), selectedText(route.Spec))
				}
			})
		},
	}
	cmd.Flags().StringVar(&stream, "stream", "", "only those that select this `stream`")
	return cmd
}

// selectedText names the streams of a route, and the routes that it selects.
func selectedText(spec *api.RouteSpec) string {
	var names []string
	for _, rule := range spec.Rules {
		if rule.Route != "" {
			names = append(names, "route "+rule.Route)
		}
		for _, leg := range rule.Legs {
			names = append(names, leg.Stream)
		}
	}
	return strings.Join(names, ", ")
}

func newRouteShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show one route: which records go to which streams, also through routes that it includes",
		Args:  exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := ask(cmd.Context(), env, "", &api.GetRouteRequest{Name: args[0]}, (*controlClient).GetRoute)
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeProto(answer)
			}
			return showRoute(env, answer)
		},
	}
}

func showRoute(env *environment, answer *api.GetRouteResponse) error {
	table := env.newTable()
	tableRow(table, "route\t%s\n", answer.Route.Spec.Name)
	tableRow(table, "created\t%s\n", answer.Route.CreateTime.AsTime().Format(time.RFC3339))
	tableRow(table, "selects\t%s\n", selectedText(answer.Route.Spec))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(table, "\nSTREAM\tCLASSES\tCRITICALITY\tREQUIRED\tLEVEL\tPOLICY\tBUFFER\tDEADLINE")
	for _, rule := range answer.Resolved {
		for _, leg := range rule.Legs {
			level := "the stream's"
			if leg.Level != api.Level_LEVEL_UNSPECIFIED {
				level = shortName(leg.Level.String())
			}
			tableRow(table, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", leg.Stream, textOr(classesText(rule.Classes), "all"),
				rule.CriticalityMin, yesNo(!leg.Optional), level,
				legPolicyName(leg.Policy), textOr(sizeOrNothing(leg.BufferSizeBytes), "-"),
				textOr(durationOrNothing(leg.Deadline.AsDuration()), "the stream's"))
		}
	}
	return table.Flush()
}

func textOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func newRouteDeleteCommand(env *environment) *cobra.Command {
	isDryRun := false
	var revision int64
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a route that no other route includes; its streams stay",
		Args:  exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := ask(cmd.Context(), env, "", &api.DeleteRouteRequest{
				Name: args[0], Revision: revision,
				DryRun: isDryRun,
			}, (*controlClient).DeleteRoute)
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeProto(answer)
			}
			fmt.Fprintf(env.stdout, "route %s %s\n", args[0],
				map[bool]string{true: "can be deleted", false: "deleted"}[isDryRun])
			return nil
		},
	}
	cmd.Flags().BoolVar(&isDryRun, "dry-run", false, "say whether it could be deleted; change nothing")
	cmd.Flags().Int64Var(&revision, "revision", 0, "only if the route is still at this `revision` (0: whichever)")
	return cmd
}
