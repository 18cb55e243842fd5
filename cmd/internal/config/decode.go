package config

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// decode puts the values into the config, each by the type of its field. Faults are collected, not returned.
func (l *loader) decode(into *Config) {
	l.checkKeys("", l.raw)
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: into, TagName: "key", DecodeHook: mapstructure.DecodeHookFuncValue(decodeValue),
		MatchName: func(mapKey, fieldName string) bool { return mapKey == fieldName },
	})
	if err == nil {
		err = decoder.Decode(l.raw)
	}
	l.decodeFaults(err)
	l.checkSigns(into)
}

// checkKeys finds the keys that there are none of. The decoder would name them only where it finds nothing else.
func (l *loader) checkKeys(path string, v any) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			l.checkKeys(path+index(i), item)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			within := joined(path, name)
			k, known := findKey(within)
			switch {
			case !known || strings.ContainsAny(name, ".["):
				f, at := unknownKey(within), l.placeOf(within)
				f.Line, f.Column = at.line, at.column
				l.faults = append(l.faults, f)
			case k.section && k.list == isList(v[name]): // else the decoder says so
				l.checkKeys(within, v[name])
			}
		}
	}
}

func isList(v any) bool {
	_, is := v.([]any)
	return is
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
	text, isText := valueAt(l.raw, path).(string)
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
		return decodeDuration(from, text)
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
	case float64:
		return decodeFloat(from, text, isText)
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

func decodeDuration(from reflect.Value, text string) (time.Duration, error) {
	if from.CanInt() && from.Int() == 0 {
		return 0, nil // whatever the unit
	}
	return ParseDuration(text)
}

func decodeSize(from reflect.Value, text string, isText bool) (Size, error) {
	if from.CanInt() && from.Int() == 0 {
		return 0, nil // whatever the unit
	}
	if !isText {
		return 0, errSize
	}
	return parseSize(text)
}

// errOctal is for a number in the environment or in quotes: in the file, the same digits would be another number.
var errOctal = errors.New("begins with a zero, which YAML reads to the base of 8; write it without")

func decodeInt(from reflect.Value, text string, isText bool) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case octal.MatchString(text):
		return 0, errOctal
	case isText && err == nil:
		return n, nil
	case !isText && from.CanInt():
		return int(from.Int()), nil
	}
	return 0, errors.New("is not a whole number")
}

func decodeFloat(from reflect.Value, text string, isText bool) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case octal.MatchString(text):
		return 0, errOctal
	case from.CanInt():
		f = float64(from.Int())
	case from.CanFloat():
		f = from.Float()
	case !isText || err != nil:
		f = math.NaN()
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errors.New("is not a number; write it like 0.05")
	}
	return f, nil
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

// mayBeZero are the numbers that have a use at 0.
var mayBeZero = []string{"retention.ids", "retention.inbox", "retention.outbox_keys", "health.degraded.failure_ratio",
	"health.unhealthy.failure_ratio"}

// checkSigns finds numbers that are given and too small.
func (l *loader) checkSigns(c *Config) {
	each(reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		if ages, is := v.Interface().(Ages); is {
			l.checkAges(path, ages)
		}
		if !l.given(path) || l.has(path) {
			return
		}
		var below, zero bool
		switch {
		case v.CanInt():
			below, zero = v.Int() < 0, v.Int() == 0
		case v.CanFloat():
			below, zero = v.Float() < 0, v.Float() == 0
		}
		switch mayBeZero := slices.Contains(mayBeZero, path); {
		case below && mayBeZero:
			l.fault(path, "%smust not be negative", l.shown(path))
		case !mayBeZero && (below || zero):
			l.fault(path, "%smust be above 0; leave it out for the default", l.shown(path))
		}
	})
}

func (l *loader) checkAges(path string, ages Ages) {
	for _, name := range slices.Sorted(maps.Keys(ages)) {
		if ages[name] < 0 {
			l.fault(path+"["+name+"]", "must not be negative; 0 is for ever")
		}
	}
}

// given says whether a key is in the file or the environment.
func (l *loader) given(path string) bool { return valueAt(l.raw, path) != nil }
