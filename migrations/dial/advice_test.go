package dial_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations/dial"
)

// The faults are made for real, at a server without TLS.
func TestWhatKeepsALoginFromPostgresSaysWhatToSet(t *testing.T) {
	dsn := deduptest.NewDatabase(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for want, change := range map[string]func(u *url.URL, query url.Values){
		"sslmode=disable":       func(_ *url.URL, q url.Values) { q.Set("sslmode", "require") },
		"user and password":     func(u *url.URL, _ url.Values) { u.User = url.UserPassword("postgres", "wrong") },
		"create the database":   func(u *url.URL, _ url.Values) { u.Path = "/none" },
		"nobody listens there":  func(u *url.URL, _ url.Values) { u.Host = closed.Addr().String() },
		"there is no such host": func(u *url.URL, _ url.Values) { u.Host = "postgres.invalid:5432" },
	} {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		query := u.Query()
		change(u, query)
		u.RawQuery = query.Encode()
		_, err = pgx.Connect(t.Context(), u.String())
		require.Error(t, err, want)
		require.ErrorContains(t, dial.Advise(err), want)
		require.ErrorIs(t, dial.Advise(err), err)
	}
}

func TestAdviceOnWhatTheTestsServerHasNot(t *testing.T) {
	for want, err := range map[string]error{
		"sslmode=require": &pgconn.PgError{Code: "28000",
			Message: `no pg_hba.conf entry for host "10.0.0.1", user "app", database "shop", no encryption`},
		"pg_hba.conf":       &pgconn.PgError{Code: "28000", Message: `role "app" does not exist`},
		"sslrootcert":       x509.UnknownAuthorityError{},
		"sslmode=verify-ca": x509.HostnameError{Certificate: &x509.Certificate{}, Host: "db"},
	} {
		require.ErrorContains(t, dial.Advise(fmt.Errorf("connect: %w", err)), want)
	}
	other := errors.New("other")
	require.Equal(t, other, dial.Advise(other))
	require.NoError(t, dial.Advise(nil))
}
