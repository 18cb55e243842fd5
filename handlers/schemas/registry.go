package schemas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"golang.org/x/sync/singleflight"

	"github.com/firstseen/firstseen/handlers"
)

// Registry knows schemas by their IDs. Make it with New. It is safe for concurrent use.
type Registry struct {
	cfg    Config
	native bool // it speaks Apicurio's own API
	client *sr.Client
	http   *http.Client
	asking singleflight.Group
	open   context.Context // ends with Close, and with it what is being asked
	close  context.CancelFunc

	mu       sync.Mutex
	schemas  map[schemaID]schema
	unknown  map[schemaID]time.Time // until when they are taken to be
	failed   error                  // the last request's
	failedAt time.Time
}

// schema reads values.
type schema interface {
	json(value []byte, at place, most int) ([]byte, error)
}

const (
	// maxSchemas caps the schemas that are kept. Where there are more, any one is asked for again.
	maxSchemas = 1000
	// maxAnswer bounds an answer of the registry, and with it a schema.
	maxAnswer = 4 << 20
	// maxReferences caps the schemas that one refers to, and those refer to.
	maxReferences = 256
	// unknownFor is the time for which a schema that the registry does not know is not asked for again.
	unknownFor = 5 * time.Second
	// failedFor is the time after a request in vain in which none is made: all partitions and lanes ask.
	failedFor = time.Second
)

// New makes a Registry. It asks for nothing yet.
func New(cfg Config) (*Registry, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	cfg = cfg.WithDefaults()
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one
	transport.TLSClientConfig = cfg.TLS
	client := &http.Client{Transport: bounded{cfg, transport}}
	c, err := sr.NewClient(sr.URLs(cfg.URL), sr.HTTPClient(client), sr.UserAgent("firstseen"))
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	r := &Registry{cfg: cfg, native: isNative(cfg.URL), client: c, http: client,
		schemas: map[schemaID]schema{}, unknown: map[schemaID]time.Time{}}
	r.open, r.close = context.WithCancel(context.Background())
	return r, nil
}

// Close ends what is being asked, and closes the connections. Formats of the registry must not be used any more.
func (r *Registry) Close() {
	r.close()
	r.http.CloseIdleConnections()
}

// Ping asks the registry for something that every one knows, and says what keeps it from answering.
func (r *Registry) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	path := "/schemas/types"
	if r.native {
		path = "/system/info"
	}
	if err := r.client.Do(ctx, http.MethodGet, path, nil, new(json.RawMessage)); err != nil {
		return r.explain(err)
	}
	return nil
}

// bounded logs each request in, and bounds its answer.
type bounded struct {
	cfg  Config
	next http.RoundTripper
}

func (b bounded) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	if isNative(b.cfg.URL) {
		q.Header.Set("Accept", "*/*") // and not Confluent's type, which it has not: 406
	}
	switch {
	case b.cfg.Token != "":
		q.Header.Set("Authorization", "Bearer "+b.cfg.Token)
	case b.cfg.Username != "":
		q.SetBasicAuth(b.cfg.Username, b.cfg.Password)
	}
	answer, err := b.next.RoundTrip(q)
	if err == nil {
		answer.Body = body{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

// CloseIdleConnections is what http.Client's looks for.
func (b bounded) CloseIdleConnections() {
	if t, ok := b.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

type body struct {
	io.Reader
	io.Closer
}

// schema gives a schema by its ID. An error is [handlers.Unavailable], or [handlers.Undecodable] where the registry
// does not know it or nobody can make anything of it. Who asks for the same one at once waits for the same answer, each
// by a context of his own: whoever asked first may leave, and the others still get it.
func (r *Registry) schema(ctx context.Context, id schemaID) (schema, error) {
	if s, err := r.known(id, time.Now()); s != nil || err != nil {
		return s, err
	}
	select {
	case found := <-r.asking.DoChan(id.String(), func() (any, error) { return r.ask(id) }):
		if found.Err != nil {
			return nil, found.Err
		}
		return found.Val.(schema), nil //nolint:errcheck,forcetypeassert // ask gives nothing else
	case <-ctx.Done():
		return nil, handlers.Unavailable(fmt.Errorf("ask for %s: %w", id, ctx.Err()))
	}
}

// known gives what needs no question.
func (r *Registry) known(id schemaID, now time.Time) (schema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.schemas[id]; s != nil {
		return s, nil
	}
	switch {
	case now.Before(r.unknown[id]):
		return nil, unknownError(id)
	case r.failed != nil && now.Sub(r.failedAt) < failedFor:
		return nil, r.failed
	}
	return nil, nil
}

func unknownError(id schemaID) error {
	return handlers.Undecodable(fmt.Errorf("the schema registry does not know %s", id))
}

// ask asks the registry, and keeps what it learns.
func (r *Registry) ask(id schemaID) (schema, error) {
	ctx, cancel := context.WithTimeout(r.open, r.cfg.Timeout)
	defer cancel()
	text, err := r.load(ctx, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, errUnknown) {
		r.failed = nil
		keep(r.unknown, id, time.Now().Add(unknownFor))
		return nil, unknownError(id)
	}
	if err != nil {
		r.failed = handlers.Unavailable(fmt.Errorf("ask for %s: %w", id, err))
		r.failedAt = time.Now()
		return nil, r.failed
	}
	r.failed = nil
	s, err := compile(ctx, text)
	if err != nil && ctx.Err() != nil {
		return nil, handlers.Unavailable(fmt.Errorf("read %s: %w", id, err))
	}
	if err != nil {
		s = unusable{fmt.Errorf("it can't be used: %w", err)}
	}
	keep(r.schemas, id, s)
	return s, nil
}

// keep notes something in a map that does not grow for ever.
func keep[V any](in map[schemaID]V, id schemaID, v V) {
	for other := range in {
		if len(in) < maxSchemas {
			break
		}
		delete(in, other)
	}
	in[id] = v
}

// unusable is a schema that values can't be read by.
type unusable struct{ err error }

func (u unusable) json([]byte, place, int) ([]byte, error) { return nil, u.err }

// text is a schema as the registry has it, with those that it refers to: each behind those that it refers to itself.
type text struct {
	of     sr.SchemaType
	schema string
	refs   []reference
}

// reference is a schema by the name that another one calls it.
type reference struct{ name, text string }

func compile(ctx context.Context, t text) (s schema, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a library failed on it")
		}
	}()
	switch t.of {
	case sr.TypeAvro:
		return newAvro(t.schema, t.refs)
	case sr.TypeProtobuf:
		return newProtobuf(ctx, t.schema, t.refs)
	case sr.TypeJSON:
		return jsonSchema{}, nil
	}
	return nil, fmt.Errorf("its type is %s", t.of)
}

// errUnknown says that the registry does not know what was asked for.
var errUnknown = errors.New("unknown")

// load asks for a schema, and for those that it refers to.
func (r *Registry) load(ctx context.Context, id schemaID) (text, error) {
	l := loading{ctx: sr.WithParams(ctx, sr.ShowDeleted), registry: r, seen: map[string]bool{}}
	var err error
	if r.native {
		err = l.native(id)
	} else {
		err = l.confluent(id)
	}
	return l.text, err
}

// loading collects a schema's references.
type loading struct {
	ctx      context.Context
	registry *Registry
	text     text
	seen     map[string]bool
}

// confluent asks by Confluent's API. References that were deleted softly are there still for those that have them.
func (l *loading) confluent(id schemaID) error {
	var s sr.Schema
	path := "/schemas/ids/" + id.text
	if id.kind == ofGUID {
		path = "/schemas/guids/" + id.text
	}
	if err := l.get(path, &s); err != nil {
		return err
	}
	l.text.of, l.text.schema = s.Type, s.Schema
	return l.confluentReferences(s.References)
}

func (l *loading) confluentReferences(refs []sr.SchemaReference) error {
	for _, ref := range refs {
		if again, err := l.again(ref.Name, ref.Subject, ref.Version); again || err != nil {
			return err
		}
		var s sr.SubjectSchema
		path := fmt.Sprintf("/subjects/%s/versions/%d", url.PathEscape(ref.Subject), ref.Version)
		if err := l.get(path, &s); err != nil {
			return missingReference(ref.Name, err)
		}
		if err := l.confluentReferences(s.References); err != nil {
			return err
		}
		l.text.refs = append(l.text.refs, reference{ref.Name, s.Schema.Schema})
	}
	return nil
}

// again says whether a reference was met before.
func (l *loading) again(name string, of ...any) (bool, error) {
	key := fmt.Sprint(append(of, name)...)
	if l.seen[key] {
		return true, nil
	}
	l.seen[key] = true
	if len(l.seen) > maxReferences {
		return false, fmt.Errorf("it refers to more than %d others", maxReferences)
	}
	return false, nil
}

// missingReference is an outage of the registry, which must not lose what others refer to.
func missingReference(name string, err error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("the registry does not have %s, which it refers to", name)
	}
	return err
}

// get asks the API for a document.
func (l *loading) get(path string, into any) error {
	err := l.registry.client.Do(l.ctx, http.MethodGet, path, nil, into)
	var refused *sr.ResponseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound && l.registry.saysUnknown(refused):
		return errUnknown
	}
	return l.registry.explain(err)
}

// saysUnknown says whether a 404 is a registry's: it says by a code, or a name, of its own that it does not know
// something. A 404 alone may be of another server.
func (r *Registry) saysUnknown(refused *sr.ResponseError) bool {
	if !r.native {
		return refused.ErrorCode >= 40400 && refused.ErrorCode < 40500
	}
	var says struct {
		Name string `json:"name"`
	}
	return json.Unmarshal(refused.Raw, &says) == nil && strings.HasSuffix(says.Name, "NotFoundException")
}

// explain says what a registry has answered, without the answer's body, which may be anything.
func (r *Registry) explain(err error) error {
	var refused *sr.ResponseError
	if !errors.As(err, &refused) {
		return err
	}
	hint := ""
	switch refused.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = ": it wants another login, or the login lacks the right to read"
	case http.StatusNotFound:
		hint = ": no schema registry answers at this address; its path may be missing, as /apis/ccompat/v7"
	}
	return fmt.Errorf("%s answers %d %s%s", r.cfg.URL, refused.StatusCode, http.StatusText(refused.StatusCode), hint)
}

// nativeReference is a reference as Apicurio's own API has it.
type nativeReference struct {
	GroupID    string `json:"groupId"`
	ArtifactID string `json:"artifactId"`
	Version    string `json:"version"`
	Name       string `json:"name"`
}

// native asks by Apicurio's own API, which gives a schema as it is, and by its ID does not say of which type it is.
func (l *loading) native(id schemaID) error {
	at := "/ids/contentIds/" + id.text
	if id.kind == ofGlobal {
		at = "/ids/globalIds/" + id.text
	}
	content, err := l.getRaw(at)
	if err != nil {
		return err
	}
	l.text.of, l.text.schema = typeOf(content), string(content)
	return l.nativeReferences(at + "/references")
}

func (l *loading) nativeReferences(at string) error {
	var refs []nativeReference
	answer, err := l.getRaw(at)
	switch {
	case errors.Is(err, errUnknown):
		return nil
	case err != nil:
		return err
	}
	if err := json.Unmarshal(answer, &refs); err != nil {
		return fmt.Errorf("read its references: %w", err)
	}
	for _, ref := range refs {
		if again, err := l.again(ref.Name, ref.GroupID, ref.ArtifactID, ref.Version); again || err != nil {
			return err
		}
		group := ref.GroupID
		if group == "" {
			group = "default"
		}
		version := fmt.Sprintf("/groups/%s/artifacts/%s/versions/%s", url.PathEscape(group), url.PathEscape(ref.ArtifactID),
			url.PathEscape(ref.Version))
		content := version
		if !strings.HasSuffix(l.registry.cfg.URL, "/v2") {
			content += "/content"
		}
		s, err := l.getRaw(content)
		if err != nil {
			return missingReference(ref.Name, err)
		}
		if err := l.nativeReferences(version + "/references"); err != nil {
			return err
		}
		l.text.refs = append(l.text.refs, reference{ref.Name, string(s)})
	}
	return nil
}

func (l *loading) getRaw(path string) ([]byte, error) {
	var content []byte
	err := l.get(path, &content)
	return content, err
}

// typeOf tells schemas apart that come without their type: Protobuf's are no JSON, and a JSON Schema is no Avro.
func typeOf(content []byte) sr.SchemaType {
	if !json.Valid(content) {
		return sr.TypeProtobuf
	}
	var any map[string]json.RawMessage
	if json.Unmarshal(content, &any) == nil && (any["$schema"] != nil || any["properties"] != nil) {
		return sr.TypeJSON
	}
	if _, err := avro.Parse(string(content), lax); err != nil && any["fields"] == nil {
		return sr.TypeJSON
	}
	return sr.TypeAvro
}
