package config

import (
	"crypto/tls"
	"crypto/x509"
)

// config reads the certificates. It is nil where TLS is off. Faults are of the section, kafka.tls for one.
func (t TLS) config(section string) (*tls.Config, []Fault) {
	if !t.Enabled {
		return nil, t.checkOff()
	}
	var faults []Fault
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator says so, and `run` warns
	}
	if t.CAFile != "" {
		c.RootCAs = x509.NewCertPool()
		faults = addCertificates(c.RootCAs, section+".ca_file", t.CAFile)
	}
	if t.CertFile != "" || t.KeyFile != "" {
		faults = append(faults, addPair(c, section, t.CertFile, t.KeyFile)...)
	}
	return c, faults
}

func addCertificates(pool *x509.CertPool, key, name string) []Fault {
	pem, err := readBounded(name)
	switch {
	case err != nil:
		return []Fault{{Key: key, Text: err.Error()}}
	case !pool.AppendCertsFromPEM(pem):
		return []Fault{{Key: key, Text: name + " holds no certificate in PEM"}}
	}
	return nil
}

// addPair reads the program's own certificate and key, of which at least one is given.
func addPair(c *tls.Config, section, certFile, keyFile string) []Fault {
	switch {
	case keyFile == "":
		return []Fault{{Key: section + ".key_file", Text: "is required beside cert_file"}}
	case certFile == "":
		return []Fault{{Key: section + ".cert_file", Text: "is required beside key_file"}}
	}
	cert, err := readBounded(certFile)
	if err != nil {
		return []Fault{{Key: section + ".cert_file", Text: err.Error()}}
	}
	key, err := readBounded(keyFile)
	if err != nil {
		return []Fault{{Key: section + ".key_file", Text: err.Error()}}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return []Fault{{Key: section + ".cert_file", Text: "with key_file: " + err.Error()}}
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

// checkOff finds the keys that say that TLS was meant to be on.
func (t TLS) checkOff() (faults []Fault) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"ca_file", t.CAFile != ""}, {"cert_file", t.CertFile != ""}, {"key_file", t.KeyFile != ""},
		{"server_name", t.ServerName != ""}, {"insecure_skip_verify", t.InsecureSkipVerify},
	} {
		if k.set {
			faults = append(faults, Fault{Key: "kafka.tls." + k.name,
				Text: "has no effect while TLS is off; set kafka.tls.enabled to true, or take this out"})
		}
	}
	return faults
}
