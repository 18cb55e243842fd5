package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strconv"
)

// minToken is how many characters a token has at least.
const minToken = 16

func (l *loader) checkHTTP(h HTTP) {
	if h.Listen != "" {
		l.checkListen(h.Listen)
	}
	_, faults := h.tls()
	for _, f := range faults {
		l.fault(f.Key, "%s", f.Text)
	}
	if len(h.Writers) > 0 && h.ClientCAFile == "" {
		l.fault("http.writers",
			"has no effect while no certificates are asked for; give http.client_ca_file, or take this out")
	}
	l.checkToken("http.read_token", h.ReadToken)
	l.checkToken("http.write_token", h.WriteToken)
	if h.ReadToken != "" && h.ReadToken == h.WriteToken {
		l.fault("http.write_token", "is the same as http.read_token; whoever may read could change: give them two")
	}
}

func (l *loader) checkListen(address string) {
	_, port, err := net.SplitHostPort(address)
	if n, errPort := strconv.ParseUint(port, 10, 16); err != nil ||
		errPort != nil || strconv.FormatUint(n, 10) != port {
		l.fault("http.listen", "%sis not an address; write host:port, like 127.0.0.1:8080, or :8080 for every address",
			l.shown("http.listen"))
	}
}

// checkToken holds a token against what a header can carry and nobody guesses.
func (l *loader) checkToken(path string, token Secret) {
	text := token.Reveal()
	if text == "" {
		return
	}
	if len(text) < minToken {
		l.fault(path, "has %d characters; make it at least %d, as by `openssl rand -hex 32`", len(text), minToken)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			l.fault(path, "has a space or a character that a header can't carry; make it as by `openssl rand -hex 32`")
			return
		}
	}
}

// TLS is what the server speaks TLS with: its certificate, and the certificates that those of clients must be signed
// by. A client may show none. It is nil where the server speaks plain HTTP.
func (h HTTP) TLS() (*tls.Config, error) {
	c, faults := h.tls()
	if len(faults) > 0 {
		return nil, &Error{Source: "read again", Faults: faults}
	}
	return c, nil
}

func (h HTTP) tls() (*tls.Config, []Fault) {
	if h.CertFile == "" && h.KeyFile == "" {
		if h.ClientCAFile != "" {
			return nil, []Fault{{Key: "http.client_ca_file",
				Text: "needs http.cert_file and http.key_file: certificates are shown by TLS only"}}
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	faults := addPair(c, "http", h.CertFile, h.KeyFile)
	if h.ClientCAFile != "" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.ClientCAs = x509.NewCertPool()
		faults = append(faults, addCertificates(c.ClientCAs, "http.client_ca_file", h.ClientCAFile)...)
	}
	return c, faults
}
