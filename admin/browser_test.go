package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// chromium finds the browser. In CI there must be one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("LOAM_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	const how = "no Chromium: install it (apt-get install chromium), or name it in LOAM_CHROMIUM"
	if os.Getenv("CI") != "" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}

// tab is a tab of a real Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps its tab in it

	mu       sync.Mutex
	reported []string // by the browser, of what a page did and may not
}

// open starts a Chromium with one tab, as an operator.
func open(t *testing.T, who string) *tab {
	t.Helper()
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(time.Minute),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // closes the browser and waits for it
	b := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*cdplog.EventEntryAdded); ok && (e.Entry.Source == cdplog.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy")) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reported = append(b.reported, e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(b, cdplog.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	b.as(who)
	b.size(1280, 900)
	return b
}

// call sends a command to the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// as changes who asks.
func (b *tab) as(who string) {
	b.t.Helper()
	call(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"X-Operator": who}})
}

func (b *tab) size(w, h int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: w, Height: h, DeviceScaleFactor: 1, Mobile: w < 600})
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// ready waits for a page of ours.
var ready = chromedp.WaitReady(chromedp.CSS("h1"))

// clickFirst opens the first delivery of a list.
var clickFirst = chromedp.Click(chromedp.CSS("a.name"))

// goTo opens an address and waits for its page.
func (b *tab) goTo(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address), ready)
}

// follow does something that leads to another page, and waits for that.
func (b *tab) follow(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, actions...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(ready)
}

// click clicks on the first element whose text is words, and waits for the page behind it.
func (b *tab) click(tag, words string) {
	b.t.Helper()
	b.follow(chromedp.Click(chromedp.Search(`//` + tag + `[normalize-space(text())="` + words + `"]`)))
}

// see waits until a page shows the words, loading it again meanwhile.
func (b *tab) see(words string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		if strings.Contains(b.read("main"), words) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("the page does not show %q: %s", words, b.read("main"))
		}
		b.follow(chromedp.Reload())
	}
}

// read returns what is read in the first element that is chosen.
func (b *tab) read(choice string) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(choice)))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\u00a0", " ")), " ")
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// fits checks that nothing has to be scrolled sideways.
func (b *tab) fits(where string) {
	b.t.Helper()
	if over := ask[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		b.t.Errorf("%s is %d px too wide", where, over)
	}
}

// shot keeps a picture of the whole page, in LOAM_SCREENSHOTS if that is set; view keeps one of what is in the window.
func (b *tab) shot(name string) {
	b.t.Helper()
	b.keep(name, ask[float64](b, `Math.min(document.documentElement.scrollHeight, 3000)`))
}

func (b *tab) view(name string) {
	b.t.Helper()
	b.keep(name, ask[float64](b, `innerHeight`))
}

func (b *tab) keep(name string, height float64) {
	b.t.Helper()
	dir := os.Getenv("LOAM_SCREENSHOTS")
	if dir == "" {
		dir = b.t.TempDir()
	}
	beyond := true
	png := call(b, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, Clip: &cdppage.Viewport{
		Width: ask[float64](b, `innerWidth`), Height: height, Scale: 1,
	}}).Data
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // the developer names the directory
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil { //nolint:gosec // the same
		b.t.Fatal(err)
	}
}

// obeyed checks that no page did what its policy forbids.
func (b *tab) obeyed() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.reported) > 0 {
		b.t.Errorf("the browser reports %q", b.reported)
	}
}

// serve serves a handler until the test is over.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
