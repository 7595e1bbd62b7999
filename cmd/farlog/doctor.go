package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/farlog/farlog/pkg/doctor"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/nvmehost"
)

// expirySoon is when a certificate's end is worth a warning.
const expirySoon = 14 * 24 * time.Hour

func newDoctorCommand(env *environment) *cobra.Command {
	isOffline, dirs, etcd := false, []string(nil), doctor.Etcd{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host for what farlog needs, and name the remedy of what is missing",
		Long: `Checks RDMA and NVMe devices, limits, memory, processor, clock, certificates, the control plane and the
directories of --dir. It changes nothing; in a directory it writes one small file and removes it. Limits are those of
this shell; a daemon that systemd starts has its own.

Exit code 0: nothing fails, there may be warnings. 1: something fails.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			env.kinds = []identity.Kind{
				identity.KindAdmin, identity.KindHost, identity.KindTarget, identity.KindDrain,
				identity.KindControl,
			}
			var host doctor.Host
			host.Root = "/"
			findings := slices.Concat(host.Examine(), host.NVMe(deviceHealth), connectionFindings())
			for _, dir := range dirs {
				findings = append(findings, host.Disk(dir)...)
			}
			if !isOffline {
				findings = append(findings, env.examineControl(cmd.Context())...)
			}
			if len(etcd.Endpoints) > 0 {
				findings = append(findings, etcd.Examine(cmd.Context())...)
			}
			return env.showFindings(findings)
		},
	}
	cmd.Flags().BoolVar(&isOffline, "offline", false, "do not check the control plane and its certificates")
	cmd.Flags().StringSliceVar(&dirs, "dir", nil, "`directories` of rings or of a store, to check their disks")
	cmd.Flags().StringSliceVar(&etcd.Endpoints, "etcd-endpoints", nil, "`addresses` of the members of an external "+
		"etcd cluster, host:port or https://host:port: each is asked for its health")
	cmd.Flags().StringVar(&etcd.Authority, "etcd-ca", "",
		"`file` with the certificate authorities of the etcd cluster (default: the system's)")
	cmd.Flags().StringVar(&etcd.Cert, "etcd-cert", "",
		"`file` with this host's certificate for the etcd cluster")
	cmd.Flags().StringVar(&etcd.Key, "etcd-key", "", "`file` with its key")
	return cmd
}

// connectionFindings tells what of connections to other hosts' namespaces does not suit a log. Each warning ends with
// its remedy.
func connectionFindings() (findings []doctor.Finding) {
	for _, device := range (nvmehost.Kernel{}).Devices() {
		for _, warning := range device.Warnings {
			at := strings.LastIndex(warning, ": ")
			findings = append(findings, doctor.Finding{
				Check: "nvme " + device.Name + " connection", State: doctor.Warn,
				Reason: warning[:at], Remedy: warning[at+2:],
			})
		}
	}
	return findings
}

// examineControl looks at the certificates that would be shown and those beside them, which this host's daemons show,
// and at whether the control plane answers and sees its etcd.
func (e *environment) examineControl(ctx context.Context) []doctor.Finding {
	findings := e.examineCertificates(time.Now())
	client, err := e.dialControl()
	if err != nil {
		return append(findings, unreachedFinding(err.Error(), findings))
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	answer, err := healthpb.NewHealthClient(client.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	switch {
	case err != nil:
		text := oneLine(client.explain(ctx, "", err))
		if !strings.Contains(text, e.control) {
			text = "control plane " + e.control + ": " + text
		}
		findings = append(findings, unreachedFinding(text, findings))
	case answer.Status != healthpb.HealthCheckResponse_SERVING:
		findings = append(findings, doctor.Finding{
			Check: "control plane", State: doctor.Fail,
			Reason: e.control + " answers, but cannot read its etcd",
			Remedy: "look at etcd's log: DATA-DIR/etcd/etcd.log, or that of your cluster",
		})
	default:
		findings = append(findings, doctor.Finding{
			Check: "control plane", State: doctor.OK,
			Reason: e.control + " answers, and sees its etcd",
		})
	}
	return findings
}

// unreachedFinding: a certificate that is not good is cured before anything else.
func unreachedFinding(reason string, certificates []doctor.Finding) doctor.Finding {
	finding := doctor.Finding{
		Check: "control plane", State: doctor.Fail, Reason: reason,
		Remedy: "look at the log of farlogd control",
	}
	if short, remedy, isThere := strings.Cut(reason, ": start one "); isThere {
		finding.Reason, finding.Remedy = short, "start one "+remedy
	}
	for _, one := range certificates {
		if one.State == doctor.Fail && one.Remedy != "" {
			finding.Remedy = one.Remedy
		}
	}
	return finding
}

func (e *environment) examineCertificates(now time.Time) []doctor.Finding {
	const check = "certificates"
	if e.isInsecure {
		return []doctor.Finding{{
			Check: check, State: doctor.Warn, Reason: insecureText,
			Remedy: "start the control plane without --insecure",
		}}
	}
	files, err := e.choice().Files()
	if errors.Is(err, identity.ErrNoCertificates) {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error(), Remedy: "farlog ca init DIR"}}
	}
	if err != nil {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error()}}
	}
	shown, err := identity.ListFiles(files)
	if err != nil {
		return []doctor.Finding{{Check: check, State: doctor.Fail, Reason: err.Error()}}
	}
	beside, err := identity.List(files.Dir())
	if err != nil { // a certificate by itself, with its authority elsewhere
		beside = nil
	}
	var findings []doctor.Finding
	for i, one := range append(shown, beside...) {
		if i >= len(shown) && slices.ContainsFunc(shown, func(s identity.Listed) bool { return s.File == one.File }) {
			continue
		}
		findings = append(findings, certificateFinding(one, files.Dir(), now))
	}
	return findings
}

func certificateFinding(one identity.Listed, dir string, now time.Time) doctor.Finding {
	finding := doctor.Finding{
		Check: "certificate " + string(one.ID), State: doctor.OK,
		Reason: "good until " + one.Expires.Format(time.DateOnly),
	}
	switch state := one.State(now); {
	case state == "expired":
		finding.State, finding.Reason = doctor.Fail, fmt.Sprintf("%s: %s on %s", one.File, state,
			one.Expires.Format(time.RFC3339))
		finding.Remedy = "farlog ca renew AUTHORITY-DIR " + dir
	case state != "good":
		finding.State, finding.Reason = doctor.Fail, fmt.Sprintf("%s: %s", one.File, state)
		finding.Remedy = "farlog ca renew AUTHORITY-DIR " + dir
	case one.Expires.Sub(now) < expirySoon:
		finding.State, finding.Reason = doctor.Warn, fmt.Sprintf("%s: ends on %s", one.File,
			one.Expires.Format(time.RFC3339))
		finding.Remedy = "farlog ca renew AUTHORITY-DIR " + dir
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
			tableRow(table, "%s\t%s\t%s\n", one.State, one.Check, one.Reason)
			if one.Remedy != "" {
				tableRow(table, "\t\t  remedy: %s\n", one.Remedy)
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
