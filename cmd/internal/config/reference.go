package config

import _ "embed"

// Both are written from the comments of config.go; a test holds them against those.
//
//go:generate env FIRSTSEEN_UPDATE_GOLDEN=1 go test -count=1 -run ReferenceIsWritten .
var (
	//go:embed example.yaml
	example string
	//go:embed schema.json
	schema string
)

// Example is a complete file: every key with its default, its unit and its comment.
func Example() string { return example }

// Schema is the JSON Schema (2020-12) of the file, for editors and checks.
func Schema() string { return schema }
