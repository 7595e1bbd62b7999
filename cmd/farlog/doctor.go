package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/farlog/farlog/pkg/doctor"
	"github.com/farlog/farlog/pkg/identity"
)

// expirySoon is when a certificate's end is worth a warning.
const expirySoon = 14 * 24 * time.Hour

func newDoctorCommand(env *environment) *cobra.Command {
	isOffline, dirs := false, []string(nil)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this host and say what stands in the way of farlog, and what cures it",
		Long: `Looks at RDMA devices, limits, memory, processor, clock, certificates and the control plane, and at the directories that are named. It changes
nothing; in a directory it writes one small file and removes it. Limits are those of this shell: a daemon of systemd has its own.

Exit code 0: nothing fails, there may be warnings. 1: something fails.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var host doctor.Host
			host.Root = "/"
			findings := host.Examine()
			for _, dir := range dirs {
				findings = append(findings, host.Disk(dir)...)
			}
			if !isOffline {
				findings = append(findings, env.examineControl(cmd.Context())...)
			}
			return env.showFindings(findings)
		},
	}
	cmd.Flags().BoolVar(&isOffline, "offline", false, "do not look for a control plane and its certificates")
	cmd.Flags().StringSliceVar(&dirs, "dir", nil, "`directories` of rings or of a store, to look at their disks")
	return cmd
}

// examineControl looks at the certificates that would be shown, and at whether the control plane answers and sees its etcd.
func (e *environment) examineControl(ctx context.Context) []doctor.Finding {
	findings := e.examineCertificates(time.Now())
	client, err := e.dialControl()
	if err != nil {
		return append(findings, doctor.Finding{Check: "control plane", State: doctor.Fail, Reason: err.Error()})
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := healthpb.NewHealthClient(client.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	switch {
	case err != nil:
		findings = append(findings, doctor.Finding{Check: "control plane", State: doctor.Fail, Reason: oneLine(client.explain(ctx, "", err))})
	case answer.Status != healthpb.HealthCheckResponse_SERVING:
		findings = append(findings, doctor.Finding{Check: "control plane", State: doctor.Fail, Reason: e.control + " answers, but cannot read its etcd",
			Cure: "look at etcd's log: DATA-DIR/etcd/etcd.log, or that of your cluster"})
	default:
		findings = append(findings, doctor.Finding{Check: "control plane", State: doctor.OK, Reason: e.control + " answers, and sees its etcd"})
	}
	return findings
}

func (e *environment) examineCertificates(now time.Time) []doctor.Finding {
	const check = "certificates"
	if e.isInsecure {
		return []doctor.Finding{{Check: check, State: doctor.Warn, Reason: insecureText, Cure: "start the control plane without --insecure"}}
	}
	files, err := e.choice().Files()
	if errors.Is(err, identity.ErrNoCertificates) {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error(), Cure: "farlog ca init DIR"}}
	}
	if err != nil {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error()}}
	}
	list, err := identity.ListFiles(files)
	if err != nil {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error()}}
	}
	var findings []doctor.Finding
	for _, one := range list {
		findings = append(findings, certificateFinding(one, files.Dir(), now))
	}
	return findings
}

func certificateFinding(one identity.Listed, dir string, now time.Time) doctor.Finding {
	finding := doctor.Finding{Check: "certificate " + string(one.ID), State: doctor.OK, Reason: "good until " + one.Expires.Format(time.DateOnly)}
	switch state := one.State(now); {
	case state != "good":
		finding.State, finding.Reason = doctor.Fail, fmt.Sprintf("%s: %s", one.File, state)
		finding.Cure = "farlog ca renew AUTHORITY-DIR " + dir
	case one.Expires.Sub(now) < expirySoon:
		finding.State, finding.Reason = doctor.Warn, fmt.Sprintf("%s: ends on %s", one.File, one.Expires.Format(time.RFC3339))
		finding.Cure = "farlog ca renew AUTHORITY-DIR " + dir
	}
	return finding
}

func (e *environment) showFindings(findings []doctor.Finding) error {
	isFailing := false
	for _, one := range findings {
		isFailing = isFailing || one.State == doctor.Fail
	}
	if e.isJSON() {
		if err := e.writeJSON(findings); err != nil {
			return err
		}
	} else {
		table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		for _, one := range findings {
			fmt.Fprintf(table, "%s\t%s\t%s\n", one.State, one.Check, one.Reason)
			if one.Cure != "" {
				fmt.Fprintf(table, "\t\t  cure: %s\n", one.Cure)
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if isFailing {
		return &exitError{code: exitFailure}
	}
	return nil
}
