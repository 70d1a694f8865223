package admin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
)

//go:embed assets/*.html
var pages embed.FS

//go:embed assets/sheet.css
var sheet []byte

// sheetDir is where the style sheet is, under a name that changes with it.
const sheetDir = "/sheet/"

var sheetName = func() string {
	sum := sha256.Sum256(sheet)
	return "loam-" + hex.EncodeToString(sum[:6]) + ".css"
}()

// templates has each page under the name of its file.
var templates = template.Must(template.ParseFS(pages, "assets/*.html"))

// sheet serves the style sheet, to everybody: it is the same for all, and 401 needs it too.
func (h *handler) sheet(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != sheetDir+sheetName || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(sheet) // whoever has gone away needs none
}
