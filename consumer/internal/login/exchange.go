package login

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asking sends a request and reads its answer, as [Ask] does.
type asking = func(kmsg.Request, kmsg.Response) error

// Handshake says which mechanism is to follow, and gives those that the broker knows. Where it does not take that one
// the error is a *kerr.Error.
func Handshake(ask asking, mechanism string) (known []string, err error) {
	request, answer := kmsg.NewPtrSASLHandshakeRequest(), kmsg.NewPtrSASLHandshakeResponse()
	request.Version, request.Mechanism = 1, mechanism
	if err := ask(request, answer); err != nil {
		return nil, err
	}
	return answer.SupportedMechanisms, kerr.ErrorForCode(answer.ErrorCode)
}

// Authenticate goes through the exchange of a mechanism, which has begun with a message, by a version of the request. life
// is how long the login lasts; zero: the broker does not say so.
func Authenticate(ctx context.Context, ask asking, version int16, state sasl.StateMachine, message []byte) (
	life time.Duration, err error) {
	for done := false; err == nil && !done; {
		request, answer := kmsg.NewPtrSASLAuthenticateRequest(), kmsg.NewPtrSASLAuthenticateResponse()
		request.Version, request.SASLAuthBytes = version, message
		if err := ask(request, answer); err != nil {
			return 0, err
		}
		if err := said(answer); err != nil {
			return 0, err
		}
		life = time.Duration(answer.SessionLifetimeMillis) * time.Millisecond
		done, message, err = state.Next(ctx, answer.SASLAuthBytes)
	}
	return life, err
}

// said is what a broker has against a login, with its own words; nil: nothing.
func said(answer *kmsg.SASLAuthenticateResponse) error {
	err := kerr.ErrorForCode(answer.ErrorCode)
	if err != nil && answer.ErrorMessage != nil {
		return fmt.Errorf("%w (%s)", err, *answer.ErrorMessage)
	}
	return err
}
