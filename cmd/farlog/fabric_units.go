package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/farlog/farlog/pkg/config"
)

// fileUnit is how the values of a field stand in a file.
type fileUnit struct {
	read    func(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error)
	write   func(field protoreflect.FieldDescriptor, value protoreflect.Value) string
	fromAPI func(text string) string // of a number that the API gives as a text; nil: as it is
}

var (
	asText        = fileUnit{read: readText, write: writeText}
	asBool        = fileUnit{read: readBool, write: writeText}
	asDuration    = fileUnit{read: readDuration, write: writeDuration}
	asCount       = numberUnit(readCount, numberOrNothing)
	asRate        = numberUnit(readRate, numberOrNothing)
	asCriticality = numberUnit(readCriticality, numberOrNothing)
	asSize        = numberUnit(config.ParseSize, sizeOrNothing)
	asPercent     = numberUnit(readPercent, percentOrNothing)
	asLevel       = asEnum("posted", "visible", "persistent")
)

// numberUnit is of unsigned integers. One of 32 bits takes at most 2^31.
func numberUnit(read func(string) (uint64, error), write func(uint64) string) fileUnit {
	return fileUnit{
		read: func(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
			number, err := read(text)
			if field.Kind() == protoreflect.Uint64Kind || err != nil {
				return protoreflect.ValueOfUint64(number), err
			}
			if number > math.MaxUint32/2+1 {
				return protoreflect.Value{}, fmt.Errorf("expected at most %s", write(math.MaxUint32/2+1))
			}
			return protoreflect.ValueOfUint32(uint32(number)), nil
		},
		write: func(_ protoreflect.FieldDescriptor, value protoreflect.Value) string { return write(value.Uint()) },
		fromAPI: func(text string) string {
			number, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return text
			}
			return write(number)
		},
	}
}

// asEnum is one of several names, which are the values of the API without what these begin with.
func asEnum(names ...string) fileUnit {
	prefix := func(field protoreflect.FieldDescriptor) string {
		return strings.TrimSuffix(string(field.Enum().Values().ByNumber(0).Name()), "UNSPECIFIED")
	}
	last := len(names) - 1
	expected := strings.Join(names[:last], ", ") + " or " + names[last]
	return fileUnit{
		read: func(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
			if !slices.Contains(names, strings.ToLower(text)) {
				return protoreflect.Value{}, errors.New("expected " + expected)
			}
			value := field.Enum().Values().ByName(protoreflect.Name(prefix(field) + strings.ToUpper(text)))
			return protoreflect.ValueOfEnum(value.Number()), nil
		},
		write: func(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
			if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
				return strings.ToLower(strings.TrimPrefix(string(known.Name()), prefix(field)))
			}
			return fmt.Sprint(value.Enum())
		},
	}
}

func readText(_ protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	return protoreflect.ValueOfString(text), nil
}

func writeText(_ protoreflect.FieldDescriptor, value protoreflect.Value) string {
	return value.String()
}

func readBool(_ protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	if text != "true" && text != "false" {
		return protoreflect.Value{}, errors.New("expected true or false")
	}
	return protoreflect.ValueOfBool(text == "true"), nil
}

func readDuration(_ protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	duration, err := config.ParseDuration(text)
	return protoreflect.ValueOfMessage(durationpb.New(duration).ProtoReflect()), err
}

func writeDuration(_ protoreflect.FieldDescriptor, value protoreflect.Value) string {
	duration, _ := value.Message().Interface().(*durationpb.Duration)
	return duration.AsDuration().String()
}

func readCount(text string) (uint64, error) {
	return readWhole32(text, 1, "expected a whole number from 1 on")
}

func readCriticality(text string) (uint64, error) {
	return readWhole32(text, 0, "expected a whole number from 0 to 255")
}

func readWhole32(text string, least uint64, expected string) (uint64, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number < least {
		return 0, errors.New(expected)
	}
	return number, nil
}

func readRate(text string) (uint64, error) {
	rate, err := strconv.ParseUint(text, 10, 64)
	if err != nil || rate == 0 {
		return 0, errors.New("expected a whole number of records a second, from 1 on")
	}
	return rate, nil
}

// readPercent reads how far a device may be worn: 80%.
func readPercent(text string) (uint64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || !isPercent || percent == 0 {
		return 0, errors.New("expected a whole number of percent from 1% to 255%, such as 80%")
	}
	return percent, nil
}

func numberOrNothing(number uint64) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatUint(number, 10)
}

func sizeOrNothing(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return config.FormatSize(bytes)
}

func percentOrNothing(percent uint64) string {
	if percent == 0 {
		return ""
	}
	return strconv.FormatUint(percent, 10) + "%"
}

func durationOrNothing(duration time.Duration) string {
	if duration == 0 {
		return ""
	}
	return duration.String()
}
