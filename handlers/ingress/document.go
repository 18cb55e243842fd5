package ingress

import (
	_ "embed"
	"encoding/json"
	"net/http"

	"github.com/firstseen/firstseen/dedup/request"
)

// openapi is the OpenAPI 3.1 document of the routes. It is written by a test from the types that are read and answered,
// so that who imports the package does not take in what writes it.
//
//go:embed openapi.json
var openapi []byte

// document gives the OpenAPI document. It names no topic and no client and is the same in every program, but says what
// can be asked for here: that is for callers only, as everything else is.
func (x *exchange) document() (*reply, *request.Problem) {
	return &reply{http.StatusOK, json.RawMessage(openapi)}, nil
}
