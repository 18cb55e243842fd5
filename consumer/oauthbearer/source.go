package oauthbearer

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// Static gives the same token each time.
func Static(token string) Source {
	return func(context.Context) (Token, error) { return Token{Value: token, Expires: expiry(token)}, nil }
}

// mostToken bounds a token's file.
const mostToken = 1 << 20

// File gives the token that a file holds; white space around it does not count. The file is read for each new
// connection, as what writes it renews it: Kubernetes does so with a token that it projects.
func File(name string) Source {
	return func(context.Context) (Token, error) {
		token, err := readToken(name)
		return Token{Value: token, Expires: expiry(token)}, err
	}
}

func readToken(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostToken+1))
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case len(text) > mostToken:
		return "", fmt.Errorf("%s is larger than 1 MiB", name)
	case token == "":
		return "", fmt.Errorf("%s is empty", name)
	}
	return token, nil
}
