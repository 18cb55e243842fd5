package dial

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Advise adds to an error of a connection what to set, where the error says enough for that. Others it gives as they
// are.
func Advise(err error) error {
	if do := advice(err); do != "" {
		return fmt.Errorf("%w: %s", err, do)
	}
	return err
}

func advice(err error) string {
	var server *pgconn.PgError
	var dns *net.DNSError
	switch {
	case err == nil:
	case errors.As(err, &server):
		return adviceOn(server)
	case strings.Contains(err.Error(), "server refused TLS connection"): // pgx has no name for it
		return "it speaks no TLS: set sslmode=disable in the connection string, or ssl = on at the server"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "its certificate is of no authority that is known here: set sslrootcert in the connection string"
	case errors.As(err, new(x509.HostnameError)):
		return "set the host in the connection string to a name of its certificate's, or sslmode=verify-ca"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there: set host and port in the connection string to those of a Postgres that runs"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "there is no such host: set the one in the connection string"
	}
	return ""
}

// adviceOn is for what the server itself answers to who logs in.
func adviceOn(err *pgconn.PgError) string {
	switch err.Code {
	case "28P01": // invalid_password
		return "set user and password in the connection string to those of a role"
	case "28000": // invalid_authorization_specification
		if strings.Contains(err.Message, "no encryption") {
			return "it lets nobody in without TLS: set sslmode=require in the connection string, or better verify-full"
		}
		return "create the role, or let it in from this host by the server's pg_hba.conf"
	case "3D000": // invalid_catalog_name
		return "create the database, or set another one in the connection string"
	}
	return ""
}
