// Package mskiam logs in to Amazon MSK by IAM: the token that it shows is a request, signed with the program's AWS
// credentials, that AWS checks for the broker. It is the way that AWS has for clients without Java, over SASL
// OAUTHBEARER, at the brokers' port 9098. It is a room of its own so that nobody links AWS' SDK unasked.
package mskiam

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

// Source signs for a cluster of a region, by the credentials that AWS' SDK finds as the program starts to look for
// them: the environment, the shared files with AWS_PROFILE, a web identity (EKS), the container's role, the machine's.
// Nothing is asked before the first connection. Credentials are renewed by the SDK, and a token, which is good for 15
// minutes, is signed again when 12 have passed.
func Source(ctx context.Context, region string) (oauthbearer.Source, error) {
	if region == "" {
		return nil, errors.New("mskiam: a region is required")
	}
	found, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err != nil {
		return nil, fmt.Errorf("mskiam: %w", err)
	}
	return SourceBy(region, found.Credentials), nil
}

// SourceBy is Source with credentials of the program's own. They are asked for each token.
func SourceBy(region string, credentials aws.CredentialsProvider) oauthbearer.Source {
	return oauthbearer.Kept(func(ctx context.Context) (oauthbearer.Token, error) {
		token, ends, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, region, credentials)
		if err != nil {
			return oauthbearer.Token{}, fmt.Errorf("AWS gives no credentials to sign with: %w; see the login's role, "+
				"AWS_PROFILE and the like", err)
		}
		return oauthbearer.Token{Value: token, Expires: time.UnixMilli(ends)}, nil
	})
}
