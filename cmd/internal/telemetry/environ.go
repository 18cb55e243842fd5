package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

const otlpPrefix = "OTEL_EXPORTER_OTLP_"

// checks catch what the SDK only logs, with its value, and then does without. Their errors show no value: it may be a
// secret in the wrong place.
var checks = []struct {
	variable string
	check    func(value string) error
}{
	{"ENDPOINT", checkEndpoint},
	{"HEADERS", checkHeaders},
	{"TIMEOUT", checkTimeout},
	{"CERTIFICATE", checkCertificate},
}

// checkOTLP reports every fault in the variables that an exporter reads, those for all signals ("") or those for one.
func checkOTLP(signal string) error {
	prefix := otlpPrefix
	if signal != "" {
		prefix += signal + "_"
	}
	var faults []error
	for _, c := range checks {
		if value := variable(prefix + c.variable); value != "" {
			faults = append(faults, within(prefix+c.variable, c.check(value)))
		}
	}
	return errors.Join(append(faults, checkClient(prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"))...)
}

// variable is an environment variable's value as the SDK takes it.
func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

func within(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func checkEndpoint(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("is no URL of a collector: write it like http://collector:4318")
	case u.User != nil:
		return errors.New("has a user in it, who is not sent: say who you are by " + otlpPrefix + "HEADERS")
	}
	return nil
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func checkHeaders(value string) error {
	for i, header := range strings.Split(value, ",") {
		if strings.TrimSpace(header) == "" {
			continue
		}
		name, text, found := strings.Cut(header, "=")
		if _, err := url.PathUnescape(text); !found || !headerName.MatchString(strings.TrimSpace(name)) || err != nil {
			return fmt.Errorf("header %d is not NAME=VALUE: write %%25 for a %% of the value, %%2C for a comma and "+
				"%%20 for a space, and a comma between two headers", i+1)
		}
	}
	return nil
}

func checkTimeout(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n <= 0 {
		return errors.New("is no number of milliseconds")
	}
	return nil
}

func checkCertificate(file string) error {
	pem, err := read(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		err = errors.New("the file holds no certificate in PEM")
	}
	return err
}

func checkClient(certificate, key string) error {
	files := [2]string{variable(certificate), variable(key)}
	if files[0] == "" && files[1] == "" {
		return nil
	}
	if files[0] == "" || files[1] == "" {
		return fmt.Errorf("%s and %s: one is set without the other", certificate, key)
	}
	cert, err := read(files[0])
	keyPEM, keyErr := read(files[1])
	if err := errors.Join(within(certificate, err), within(key, keyErr)); err != nil {
		return err
	}
	_, err = tls.X509KeyPair(cert, keyPEM)
	return within(certificate+" and "+key, err)
}

// read is os.ReadFile with an error that does not show the name.
func read(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	var named *fs.PathError
	if errors.As(err, &named) {
		err = named.Err
	}
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	return content, nil
}
