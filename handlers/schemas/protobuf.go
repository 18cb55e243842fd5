package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/firstseen/firstseen/handlers/protocodec"
)

// protobufSchema writes messages as JSON as Protobuf says ("ProtoJSON Format"), with the names of the schema's text and
// with fields that have the value that they have when they are not there.
type protobufSchema struct {
	file    protoreflect.FileDescriptor
	marshal protojson.MarshalOptions
	read    proto.UnmarshalOptions
}

// mainFile is the name of a schema among those that it refers to, which have names of their own.
const mainFile = "schema of the registry.proto"

// builtIn are the files that Confluent's serializers know without being referred to.
var builtIn = map[string]string{
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
		message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
		extend google.protobuf.FileOptions { Meta file_meta = 1088; }
		extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
		extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
		extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
		extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type;
		message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
}

// newProtobuf compiles a schema. refs have the texts of the files that it imports, and those import.
func newProtobuf(ctx context.Context, text string, refs []reference) (*protobufSchema, error) {
	files := map[string]string{mainFile: text}
	for name, text := range builtIn {
		files[name] = text
	}
	for _, r := range refs {
		files[r.name] = r.text
	}
	c := protocompile.Compiler{MaxParallelism: 1, Resolver: protocompile.WithStandardImports(
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)})}
	compiled, err := c.Compile(ctx, mainFile)
	if err != nil {
		return nil, err
	}
	types := compiled.AsResolver()
	return &protobufSchema{file: compiled[0],
		marshal: protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true, Resolver: types},
		read:    proto.UnmarshalOptions{Resolver: types, RecursionLimit: maxDepth}}, nil
}

// maxFields caps the fields of a value, each of which takes much more memory than its two bytes.
const maxFields = 1 << 17

func (s *protobufSchema) json(value []byte, at place, most int) ([]byte, error) {
	of, err := s.message(at)
	if err != nil {
		return nil, err
	}
	if fields(value, of, 0) > maxFields {
		return nil, fmt.Errorf("read Protobuf: it has more than %d fields", maxFields)
	}
	m := dynamicpb.NewMessage(of)
	if err := s.read.Unmarshal(value, m); err != nil {
		return nil, protocodec.Fault(value, of, err)
	}
	text, err := s.marshal.Marshal(m)
	if err != nil {
		return nil, errors.New("read Protobuf: it has a text that is not UTF-8, or a well-known type with a value that has no JSON")
	}
	var out bytes.Buffer // the library adds white space at random, so that nobody relies on it
	if err := json.Compact(&out, text); err != nil {
		return nil, err
	}
	if out.Len() > most {
		return nil, errors.New("read Protobuf: it is too large as JSON")
	}
	return out.Bytes(), nil
}

// message finds the type of a value. Without a word about it, it is the first of the file.
func (s *protobufSchema) message(at place) (protoreflect.MessageDescriptor, error) {
	if at.name != "" {
		if of := s.named(protoreflect.FullName(at.name)); of != nil {
			return of, nil
		}
	}
	indexes := at.indexes
	if len(indexes) == 0 {
		indexes = []int{0}
	}
	var of protoreflect.MessageDescriptor
	for messages := s.file.Messages(); len(indexes) > 0; indexes = indexes[1:] {
		if indexes[0] >= messages.Len() {
			return nil, errors.New("read Protobuf: it names a message that the schema does not have")
		}
		of = messages.Get(indexes[0])
		messages = of.Messages()
	}
	return of, nil
}

// named finds a message of the file by its full name, or by that alone; nil: there is none.
func (s *protobufSchema) named(name protoreflect.FullName) protoreflect.MessageDescriptor {
	of := s.file.Messages().ByName(name.Name())
	if of != nil && name.Parent() != "" && of.FullName() != name {
		return nil
	}
	return of
}

// fields counts the fields of a message, and of those in it. It stops where the message is broken.
func fields(b []byte, of protoreflect.MessageDescriptor, depth int) (count int) {
	for len(b) > 0 && depth <= maxDepth && count <= maxFields {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return count
		}
		length := protowire.ConsumeFieldValue(number, kind, b[n:])
		if length < 0 {
			return count
		}
		count++
		if field := of.Fields().ByNumber(number); field != nil && kind == protowire.BytesType {
			part, _ := protowire.ConsumeBytes(b[n:])
			switch {
			case field.Message() != nil:
				count += fields(part, field.Message(), depth+1)
			case field.IsPacked():
				count += len(part)
			}
		}
		b = b[n+length:]
	}
	return count
}
