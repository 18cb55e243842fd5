package config

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// decode puts the values into the config, each by the type of its field. Faults are collected, not returned.
func (l *loader) decode(into any) {
	var seen mapstructure.Metadata
	err := l.values.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", Metadata: &seen, DecodeHook: mapstructure.DecodeHookFuncValue(decodeValue),
		MatchName: func(mapKey, fieldName string) bool { return mapKey == fieldName },
	}})
	slices.Sort(seen.Unused)
	for _, path := range seen.Unused {
		l.faults = append(l.faults, unknownKey(path))
	}
	l.decodeFaults(err)
}

func (l *loader) decodeFaults(err error) {
	var one *mapstructure.DecodeError
	switch many := err.(type) { //nolint:errorlint // the tree itself is walked
	case nil:
	case interface{ Unwrap() []error }:
		for _, err := range many.Unwrap() {
			l.decodeFaults(err)
		}
	case interface{ Unwrap() error }:
		if !errors.As(err, &one) || error(one) != err { //nolint:errorlint // as above
			l.decodeFaults(many.Unwrap())
			return
		}
		l.fault(one.Name(), "%s%s", l.shown(one.Name()), one.Unwrap())
	}
}

// shown is the value of a key and a space where it may be shown, for the start of a fault's text.
func (l *loader) shown(path string) string {
	k, known := findKey(path)
	text, isText := l.values.Get(path).(string)
	if !known || k.secret || k.section || l.unshown[path] || !isText || strings.Contains(path, "[") {
		return ""
	}
	return strconv.Quote(text) + " "
}

// decodeValue gives a value the type of its field, or says what should be there. What it says shows no value.
func decodeValue(from, to reflect.Value) (any, error) {
	text, isText := from.Interface().(string)
	switch to.Interface().(type) {
	case time.Duration:
		return decodeDuration(text)
	case Size:
		return decodeSize(from, text, isText)
	case List:
		if isText {
			return splitList(text), nil
		}
	case Sources:
		if isText {
			return Sources{text}, nil
		}
	case int:
		return decodeInt(from, text, isText)
	case bool:
		return decodeBool(from, text, isText)
	}
	return from.Interface(), checkKind(from.Kind(), to.Kind())
}

func checkKind(from, to reflect.Kind) error {
	switch {
	case to == reflect.String && from != reflect.String:
		return errors.New("is not a text; put it in quotes")
	case to == reflect.Slice && from != reflect.Slice:
		return errors.New("is not a list; begin each of its items with - on a line of its own")
	case (to == reflect.Struct || to == reflect.Map) && from != reflect.Map:
		return errors.New("is not a section; write its keys below it, indented")
	}
	return nil
}

func splitList(text string) List {
	list := List{}
	for item := range strings.SplitSeq(text, ",") {
		list = append(list, strings.TrimSpace(item))
	}
	return list
}

func decodeDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("is not a duration; write a number with its unit, like 500ms, 15s or 2m")
	}
	return d, positive(d)
}

func decodeSize(from reflect.Value, text string, isText bool) (Size, error) {
	if from.CanInt() {
		text, isText = strconv.FormatInt(from.Int(), 10), true
	}
	if !isText {
		return 0, errSize
	}
	n, err := parseSize(text)
	if err != nil {
		return 0, err
	}
	return n, positive(n)
}

func decodeInt(from reflect.Value, text string, isText bool) (int, error) {
	if isText {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, errors.New("is not a whole number")
		}
		return n, positive(n)
	}
	if !from.CanInt() {
		return 0, errors.New("is not a whole number")
	}
	n := int(from.Int())
	return n, positive(n)
}

func decodeBool(from reflect.Value, text string, isText bool) (bool, error) {
	if b, err := strconv.ParseBool(text); isText && err == nil {
		return b, nil
	}
	if from.Kind() != reflect.Bool {
		return false, errors.New("is neither true nor false")
	}
	return from.Bool(), nil
}

// positive holds for every number of a config: none has a use at 0.
func positive[T ~int | ~int64](n T) error {
	if n <= 0 {
		return errors.New("must be above 0; leave it out for the default")
	}
	return nil
}
