package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"path"

	"github.com/openloam/loam/health"
	"github.com/openloam/loam/tenant"
)

// Reporter says how an engine is; *loam.Engine implements it.
type Reporter interface {
	Health(ctx context.Context) health.Report
}

// Health returns a handler for load balancers and people with curl. The last segment of the path decides, so that it can be
// mounted anywhere: …/live and …/ready answer 200 or 503 with a word; any other path answers with the whole report as JSON,
// 503 when the engine is not ready. It asks nobody who they are and shows no tenant's data: a backlog is a tenant's, and is
// in the report only if the application has put a tenant into the request's context.
func Health(engine Reporter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		report := engine.Health(ctx)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch path.Base(r.URL.Path) {
		case "live":
			word(w, report.Live, "live")
		case "ready":
			word(w, report.Ready, "ready")
		default:
			detail(w, report, tenant.From(ctx) != "")
		}
	})
}

func word(w http.ResponseWriter, ok bool, yes string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		yes = "not " + yes
	}
	_, _ = w.Write([]byte(yes + "\n")) // whoever has gone away needs none
}

func detail(w http.ResponseWriter, report health.Report, scoped bool) {
	text, err := json.Marshal(report)
	if err == nil && !scoped {
		text, err = without(text, "due_now", "oldest_due_ns")
	}
	if err != nil {
		http.Error(w, "the report could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !report.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(text, '\n')) // whoever has gone away needs none
}

// without takes fields out of a JSON object.
func without(object []byte, fields ...string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	for _, f := range fields {
		delete(all, f)
	}
	return json.Marshal(all)
}
