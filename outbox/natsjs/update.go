package natsjs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// The subjects of JetStream's API; names follow.
const (
	apiStreamInfo     = "$JS.API.STREAM.INFO."
	apiStreamCreate   = "$JS.API.STREAM.CREATE."
	apiStreamUpdate   = "$JS.API.STREAM.UPDATE."
	apiConsumerInfo   = "$JS.API.CONSUMER.INFO."
	apiConsumerCreate = "$JS.API.CONSUMER.CREATE."
)

// object is a stream or a consumer that is to be changed.
type object struct {
	kind, name string
	// info and update are the subjects of the API, edit is how an operator begins the command that does the same.
	info, update, edit string
	// body is what the update takes.
	body func(config any) any
}

// difference is a field that is not as this build needs it: numbers, or durations.
type difference struct {
	field, flag string
	is, want    any
}

// update changes fields of what is there, and only those: the configuration is cloned as the broker writes it, so that fields
// which this build does not know stay as well. It warns of what it changes. If the broker refuses, it warns of that, and of
// the command for doing it by hand; changed is false then, and err nil. err says that there is no connection.
func (b *Bus) update(ctx context.Context, js jetstream.JetStream, o object, all []difference) (changed bool, err error) {
	var differ []difference
	for _, d := range all {
		if d.is != d.want {
			differ = append(differ, d)
		}
	}
	if len(differ) == 0 {
		return false, nil
	}
	command, id := []string{o.edit}, []string{o.kind}
	told := attrs("kind", o.kind, "name", o.name)
	for _, d := range differ {
		command = append(command, fmt.Sprintf("%s=%v", d.flag, d.want))
		id = append(id, fmt.Sprint(d.field, d.is, d.want))
		told = append(told, slog.Group(d.field, slog.Any("is", d.is), slog.Any("needed", d.want)))
	}
	switch err = b.change(ctx, js, o, differ); {
	case err == nil:
		b.cfg.Logger.WarnContext(ctx, "updated in NATS what this build needs otherwise", told...)
		return true, nil
	case ctx.Err() != nil || !js.Conn().IsConnected():
		return false, err
	}
	if b.told.First(strings.Join(id, " ")) {
		told = append(told, attrs("command", strings.Join(command, " "))...)
		b.cfg.Logger.WarnContext(ctx, "what this build needs otherwise in NATS could not be updated, going on; update it by hand",
			append(told, slog.Any("error", err))...)
	}
	return false, nil
}

func (b *Bus) change(ctx context.Context, js jetstream.JetStream, o object, differ []difference) error {
	var info struct {
		Config map[string]json.RawMessage `json:"config"`
	}
	if err := b.ask(ctx, js, o.info, nil, &info); err != nil {
		return err
	}
	for _, d := range differ {
		text, err := json.Marshal(d.want) // a duration is written in nanoseconds, as the API has it
		if err != nil {
			return err
		}
		info.Config[d.field] = text
	}
	return b.ask(ctx, js, o.update, o.body(info.Config), nil)
}

// ask makes a request of JetStream's API. A right that is missing is errDenied.
func (b *Bus) ask(ctx context.Context, js jetstream.JetStream, subject string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, b.times.api)
	defer cancel()
	var data []byte
	if request != nil {
		var err error
		if data, err = json.Marshal(request); err != nil {
			return err
		}
	}
	return b.denied.asking(ctx, subject, func(ctx context.Context) error {
		m, err := js.Conn().RequestWithContext(ctx, subject, data)
		if err != nil {
			return err
		}
		var failed struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &failed); err != nil {
			return fmt.Errorf("read the answer of %s: %w", subject, err)
		}
		if failed.Error != nil {
			return failed.Error
		}
		if answer == nil {
			return nil
		}
		return json.Unmarshal(m.Data, answer)
	})
}

// attrs makes string attributes of pairs.
func attrs(pairs ...string) []any {
	var all []any
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, slog.String(pairs[i], pairs[i+1]))
	}
	return all
}
