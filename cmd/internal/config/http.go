package config

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strconv"

	"github.com/firstseen/firstseen/consumer/service"
)

func (l *loader) checkHTTP(h HTTP) {
	if h.Listen != "" {
		l.checkListen("http.listen", h.Listen)
	}
	_, faults := h.tls()
	for _, f := range faults {
		l.fault(f.Key, "%s", f.Text)
	}
	if len(h.Writers) > 0 && h.ClientCAFile == "" {
		l.fault("http.writers",
			"has no effect while no certificates are asked for; give http.client_ca_file, or take this out")
	}
	for _, f := range h.Mask.config().Faults() {
		l.fault("http.mask."+f.List, "%s", f.Text)
	}
	l.checkToken("http.read_token", h.ReadToken)
	l.checkToken("http.write_token", h.WriteToken)
	if h.ReadToken != "" && h.ReadToken == h.WriteToken {
		l.fault("http.write_token", "is the same as http.read_token; whoever may read could change: give them two")
	}
}

func (l *loader) checkListen(path, address string) {
	_, port, err := net.SplitHostPort(address)
	if n, errPort := strconv.ParseUint(port, 10, 16); err != nil ||
		errPort != nil || strconv.FormatUint(n, 10) != port {
		l.fault(path, "%sis not an address; write host:port, like 127.0.0.1:8080, or :8080 for every address",
			l.shown(path))
	}
}

// checkToken holds a token against what a header can carry and nobody guesses.
func (l *loader) checkToken(path string, token Secret) {
	text := token.Reveal()
	if text == "" {
		return
	}
	if len(text) < service.LeastToken {
		l.fault(path, "has %d characters; make it at least %d, as by `openssl rand -hex 32`", len(text), service.LeastToken)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			l.fault(path, "has a space or a character that a header can't carry; make it as by `openssl rand -hex 32`")
			return
		}
	}
}

// TLS is the server's config: its certificate, and the certificates that those of clients must be signed by. A client
// may show none. The files are read again for new connections. It is nil where the server speaks plain HTTP.
func (h HTTP) TLS(log *slog.Logger) (*tls.Config, error) { return serving("http", log, h.tls) }

func (h HTTP) tls() (*tls.Config, []Fault) {
	return serverTLS("http", h.CertFile, h.KeyFile, h.ClientCAFile)
}

// serverTLS reads the certificates of a section that is a server's.
func serverTLS(section, certFile, keyFile, clientCAFile string) (*tls.Config, []Fault) {
	if certFile == "" && keyFile == "" {
		if clientCAFile != "" {
			return nil, []Fault{{Key: section + ".client_ca_file",
				Text: "needs " + section + ".cert_file and " + section + ".key_file: certificates are shown by TLS only"}}
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	faults := addPair(c, section, certFile, keyFile)
	if clientCAFile != "" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.ClientCAs = x509.NewCertPool()
		faults = append(faults, addCertificates(c.ClientCAs, section+".client_ca_file", clientCAFile)...)
	}
	return c, faults
}
