package mskiam_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/mskiam"
)

// example are the credentials of AWS' documents.
var example = aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE",
	SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}

// given are credentials that a program has.
func given(c aws.Credentials, err error) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return c, err })
}

// The signatures are those of AWS' botocore for the same second, which is the first of a bubble of time.
func TestTokenIsTheRequestThatAWSChecks(t *testing.T) {
	temporary := example
	temporary.SessionToken = "SESSION"
	for want, credentials := range map[string]aws.Credentials{
		"586555c02c75ee352b0ba7c69b3594c50ae540cdfb89edd4c03f6cbbaeeec391": example,
		"68fa91209b29ec1a9dd5980372b607c0f1fdf52eae8bd5f96013e0790babeebb": temporary,
	} {
		synctest.Test(t, func(t *testing.T) {
			token, err := mskiam.SourceBy("eu-west-1", given(credentials, nil))(t.Context())
			require.NoError(t, err)
			require.Equal(t, time.Now().Add(15*time.Minute), token.Expires.In(time.Local))
			text, err := base64.RawURLEncoding.DecodeString(token.Value)
			require.NoError(t, err)
			signed, err := url.Parse(string(text))
			require.NoError(t, err)
			require.Equal(t, "kafka.eu-west-1.amazonaws.com", signed.Host)
			require.Equal(t, "kafka-cluster:Connect", signed.Query().Get("Action"))
			require.Equal(t, credentials.SessionToken, signed.Query().Get("X-Amz-Security-Token"))
			require.Equal(t, want, signed.Query().Get("X-Amz-Signature"))
		})
	}
}

func TestTokenIsSignedAgainBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		source := mskiam.SourceBy("eu-west-1", aws.CredentialsProviderFunc(
			func(context.Context) (aws.Credentials, error) { asked++; return example, nil }))
		for range 24 { // minutes
			token, err := source(t.Context())
			require.NoError(t, err)
			require.Greater(t, time.Until(token.Expires), 2*time.Minute)
			time.Sleep(time.Minute)
		}
		require.Equal(t, 2, asked)
	})
}

func TestWhereAWSGivesNoCredentialsThatIsSaid(t *testing.T) {
	_, err := mskiam.SourceBy("eu-west-1", given(aws.Credentials{}, errors.New("no role")))(t.Context())
	require.ErrorContains(t, err, "AWS gives no credentials to sign with")
	require.ErrorContains(t, err, "no role")
	_, err = mskiam.SourceBy("eu-west-1", given(aws.Credentials{}, nil))(t.Context())
	require.ErrorContains(t, err, "credentials cannot be empty")
	_, err = mskiam.Source(t.Context(), "")
	require.ErrorContains(t, err, "a region is required")
}

func TestCredentialsAreFoundAsAWSProgramsFindThem(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", example.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", example.SecretAccessKey)
	source, err := mskiam.Source(t.Context(), "eu-west-1")
	require.NoError(t, err)
	token, err := source(t.Context())
	require.NoError(t, err)
	text, err := base64.RawURLEncoding.DecodeString(token.Value)
	require.NoError(t, err)
	require.Contains(t, string(text), example.AccessKeyID+"%2F")
	require.NotContains(t, string(text), example.SecretAccessKey)
}
