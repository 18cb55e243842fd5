package config

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// config reads the certificates. It is nil where TLS is off.
func (t TLS) config() (*tls.Config, []Fault) {
	if !t.Enabled {
		return nil, t.checkOff()
	}
	var faults []Fault
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator says so, and `run` warns
	}
	if t.CAFile != "" {
		if c.RootCAs = x509.NewCertPool(); !addCertificates(c.RootCAs, t.CAFile, &faults) {
			return nil, append(faults, t.addCertificate(c)...)
		}
	}
	return c, append(faults, t.addCertificate(c)...)
}

func addCertificates(pool *x509.CertPool, name string, faults *[]Fault) bool {
	pem, err := os.ReadFile(name) //nolint:gosec // the operator says which
	switch {
	case err != nil:
		*faults = append(*faults, Fault{"kafka.tls.ca_file", err.Error()})
	case !pool.AppendCertsFromPEM(pem):
		*faults = append(*faults, Fault{"kafka.tls.ca_file", name + " holds no certificate in PEM"})
	}
	return len(*faults) == 0
}

// addCertificate reads the program's own certificate and key.
func (t TLS) addCertificate(c *tls.Config) []Fault {
	switch {
	case t.CertFile == "" && t.KeyFile == "":
		return nil
	case t.KeyFile == "":
		return []Fault{{"kafka.tls.key_file", "is required beside cert_file"}}
	case t.CertFile == "":
		return []Fault{{"kafka.tls.cert_file", "is required beside key_file"}}
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return []Fault{{"kafka.tls.cert_file", "with key_file: " + err.Error()}}
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
			faults = append(faults, Fault{"kafka.tls." + k.name, "has no effect while TLS is off; set kafka.tls.enabled to true, or take this out"})
		}
	}
	return faults
}
