package oauthbearer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// ClientCredentials asks an authorization server for tokens, as the client itself (RFC 6749, 4.4).
type ClientCredentials struct {
	// TokenURL is the server's token endpoint, http or https, without credentials. Required.
	TokenURL string
	// ClientID and ClientSecret are what the client is known by. Both are required. They are sent as HTTP's basic
	// authentication, or in the form where the server does not take that.
	ClientID, ClientSecret string
	// Scopes are asked for. Default: the server's own.
	Scopes []string
	// Parameters are sent beside, as some servers' audience or resource.
	Parameters map[string]string
	// TLS is for a TokenURL of https. Default: the system's authorities.
	TLS *tls.Config
}

// Check says all that is wrong.
func (c ClientCredentials) Check() error {
	var faults []error
	if c.ClientID == "" {
		faults = append(faults, errors.New("a client ID is required"))
	}
	if c.ClientSecret == "" {
		faults = append(faults, errors.New("a client secret is required"))
	}
	u, err := url.Parse(c.TokenURL)
	switch {
	case err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme):
		faults = append(faults, errors.New("the token URL is none of http or https"))
	case u.User != nil:
		faults = append(faults, errors.New("the token URL has credentials in it"))
	}
	for _, name := range []string{"grant_type", "scope", "client_id", "client_secret"} {
		if _, given := c.Parameters[name]; given {
			faults = append(faults, fmt.Errorf("parameter %s has a setting of its own", name))
		}
	}
	return errors.Join(faults...)
}

// Source asks at the first connection, and again when four fifths of a token's time have passed: see [Kept]. Proxies
// are those of the environment (HTTPS_PROXY and the like). A redirect is not followed: the secret stays where it was
// sent.
func (c ClientCredentials) Source() (Source, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("oauthbearer: client credentials: %w", err)
	}
	parameters := url.Values{}
	for name, value := range c.Parameters {
		parameters.Set(name, value)
	}
	asked := &clientcredentials.Config{TokenURL: c.TokenURL, ClientID: c.ClientID, ClientSecret: c.ClientSecret,
		Scopes: c.Scopes, EndpointParams: parameters}
	client := &http.Client{
		// tokens are asked for too seldom for a connection to be kept
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return Kept(func(ctx context.Context) (Token, error) {
		token, err := asked.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
		if err != nil {
			return Token{}, c.explained(err)
		}
		ends := token.Expiry
		if ends.IsZero() {
			ends = expiry(token.AccessToken)
		}
		return Token{Value: token.AccessToken, Expires: ends}, nil
	}), nil
}

// explained is an error of the token endpoint in words, without what the server's page may hold.
func (c ClientCredentials) explained(err error) error {
	var refusal *oauth2.RetrieveError
	var failed *url.Error
	switch {
	case errors.As(err, &refusal) && refusal.ErrorCode != "":
		return fmt.Errorf("the token endpoint %s refuses client %q: %s %.200q; see its client ID, secret and scopes",
			c.TokenURL, c.ClientID, refusal.ErrorCode, refusal.ErrorDescription)
	case errors.As(err, &refusal):
		return fmt.Errorf("the token endpoint %s gives no token and answers %s", c.TokenURL, refusal.Response.Status)
	case errors.As(err, &failed):
		return fmt.Errorf("the token endpoint %s does not answer: %w", c.TokenURL, failed.Err)
	}
	return fmt.Errorf("the token endpoint %s gives no token: %w", c.TokenURL, err)
}
