package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// A session ends some hours after it began, or when it has not been used for an hour; when there are too many, the one
// that was used longest ago does. The token within is held against the API's settings at each request, so that who
// changes it ends the sessions as well.
const (
	sessionFor  = 12 * time.Hour
	sessionIdle = time.Hour
	maxSessions = 200
	cookieName  = "firstseen_session"
)

// session is somebody signed in, by a token that is kept on the server only.
type session struct {
	token, actor string
	began, used  time.Time
}

// sign gives a request to the API the session's credential. A nil session leaves what the request brings.
func (s *session) sign(h http.Header) {
	if s == nil {
		return
	}
	h.Set("Authorization", "Bearer "+s.token)
	h.Del("X-Actor")
	if s.actor != "" {
		h.Set("X-Actor", s.actor)
	}
}

// sessions are those signed in, by the hash of what the cookie has. The zero value has none.
type sessions struct {
	mu   sync.Mutex
	open map[[32]byte]*session
}

// of is the session that a request's cookie names; nil: none.
func (s *sessions) of(r *http.Request, now time.Time) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(cookie.Value))
	found := s.open[key]
	if found == nil {
		return nil
	}
	if found.over(now) {
		delete(s.open, key)
		return nil
	}
	found.used = now
	copied := *found
	return &copied
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.began) > sessionFor || now.Sub(s.used) > sessionIdle
}

// begin opens a session and gives the cookie's value.
func (s *sessions) begin(token, actor string, now time.Time) (value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[32]byte]*session{}
	}
	s.makeRoom(now)
	value = rand.Text() + rand.Text()
	s.open[sha256.Sum256([]byte(value))] = &session{token, actor, now, now}
	return value
}

func (s *sessions) makeRoom(now time.Time) {
	var oldest [32]byte
	for key, of := range s.open {
		if of.over(now) {
			delete(s.open, key)
		} else if s.open[oldest] == nil || of.used.Before(s.open[oldest].used) {
			oldest = key
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, oldest)
	}
}

func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, sha256.Sum256([]byte(cookie.Value)))
	}
}

// signInForm is what the form to sign in shows.
type signInForm struct {
	Next, Actor, Fault string
	Plain              bool // over HTTP, where the browser keeps no cookie of ours
}

// askToSignIn answers with the form, which leads back to the page that was asked for.
func (v *visit) askToSignIn(fault string) {
	form := signInForm{Next: v.r.PostFormValue("next"), Actor: v.r.PostFormValue("actor"), Fault: fault,
		Plain: v.r.TLS == nil && !httpjson.ThisHost(v.r.Host) && v.r.Header.Get("X-Forwarded-Proto") != "https"}
	if v.r.Method != http.MethodPost {
		form.Next = (&url.URL{Path: v.name, RawQuery: v.r.URL.RawQuery}).String()
	}
	v.w.Header().Set("WWW-Authenticate", `Bearer realm="firstseen"`) // browsers ask for nothing by it
	v.send(http.StatusUnauthorized, v.render("signin", frame{Title: "Sign in", Body: form}))
}

// signIn begins a session, where the API takes the token, and leads to the page that was asked for.
func (v *visit) signIn() {
	v.session = &session{token: strings.TrimSpace(v.r.PostFormValue("token")),
		actor: strings.TrimSpace(v.r.PostFormValue("actor"))}
	if len(v.session.actor) > 100 || visible(v.session.actor) != v.session.actor {
		v.askToSignIn("The name has more than 100 bytes, or a character that can't be seen.")
		return
	}
	if strings.ContainsFunc(v.session.token, func(r rune) bool { return r <= ' ' || r > '~' }) || v.session.token == "" {
		v.askToSignIn("That is no token: they have no spaces and no letters beyond ASCII.")
		return
	}
	switch err := v.get("/access", nil, &v.access); {
	case statusOf(err) == http.StatusUnauthorized && err != nil:
		v.askToSignIn("The token is neither the read token nor the write token.")
	case err != nil:
		v.refuse(err)
	default:
		http.SetCookie(v.w, v.cookie(v.page.sessions.begin(v.session.token, v.session.actor, v.now), 0))
		v.redirect(v.localPage(v.r.PostFormValue("next")))
	}
}

func (v *visit) signOut() {
	v.page.sessions.end(v.r)
	http.SetCookie(v.w, v.cookie("", -1))
	v.redirect("./")
}

// cookie has no path: a browser takes that of the form, which is the page's own, also behind a proxy that adds one (RFC
// 6265, section 5.1.4). It is for HTTPS only, but where the browser is on this host.
func (v *visit) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, MaxAge: age, HttpOnly: true, //nolint:gosec // Secure but there
		SameSite: http.SameSiteLaxMode, Secure: v.r.TLS != nil || !httpjson.ThisHost(v.r.Host)}
}

// localPage is the address of one of our pages, and that of the first one where it is not.
func (v *visit) localPage(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || v.page.pages[u.Path] == nil || u.Path == "" {
		return "./"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.Query().Encode()}).String()
}

// redirect leads to a page by an address that is relative: http.Redirect makes it one of this host, below no proxy's
// path.
func (v *visit) redirect(address string) {
	v.w.Header().Set("Location", address)
	v.w.WriteHeader(http.StatusSeeOther)
}

// formToken is what a form of the visitor's has to bring along: nobody else can know it.
func (v *visit) formToken() string {
	mac := hmac.New(sha256.New, v.page.secret[:])
	who := v.r.Header.Get("Authorization")
	if cookie, err := v.r.Cookie(cookieName); err == nil && v.session != nil {
		who = cookie.Value
	}
	mac.Write([]byte(who))
	return hex.EncodeToString(mac.Sum(nil))
}

// ownForm says that the request is by a form that was given to the visitor.
func (v *visit) ownForm() bool {
	return subtle.ConstantTimeCompare([]byte(v.r.PostFormValue("form")), []byte(v.formToken())) == 1
}
