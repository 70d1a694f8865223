package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// printer prints from several goroutines, a line at a time.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) title(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "\n== %s\n", text)
}

func (p *printer) say(who string, e events.Event, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%-18s %-7s %-23s invoice %-3v %s\n", who, e.TenantID, e.Name, e.Payload["invoice_id"], what)
}

func table(ctx context.Context, engine *loam.Engine, p *printer, title string) error {
	p.title(title)
	p.mu.Lock()
	defer p.mu.Unlock()
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TENANT\tEVENT\tSUBSCRIBER\tSTATUS\tATTEMPTS\tLAST ERROR")
	for _, t := range tenants {
		for after := ""; ; {
			page, err := engine.Deliveries(tenant.With(ctx, t), durable.Query{After: after})
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			for _, d := range page {
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\n", d.TenantID, d.EventName, d.SubscriberKey, d.Status, d.Attempts, d.LastError)
				after = d.ID
			}
		}
	}
	return tw.Flush()
}
