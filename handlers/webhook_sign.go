package handlers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// sign gives the signatures of a call, one for each key, by Standard Webhooks version 1, section "Webhook signature".
func sign(keys [][]byte, id, timestamp string, body []byte) string {
	var signatures []byte
	for i, key := range keys {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + timestamp + "."))
		h.Write(body)
		signatures = append(signatures, "v1,"...)
		signatures = base64.StdEncoding.AppendEncode(signatures, h.Sum(nil))
	}
	return string(signatures)
}
