// Package hardened reads from an ELF file what the compiler and the linker did against errors of memory in it.
package hardened

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// stackProbe is what gcc and clang emit for -fstack-clash-protection on x86-64: or QWORD PTR [rsp],0x0.
var stackProbe = []byte{0x48, 0x83, 0x0c, 0x24, 0x00}

const (
	noteGNUProperty    = 5
	propertyX86Feature = 0xc0000002
	featureShadowStack = 1 << 1
)

// landingPad is endbr64, where an indirect call may land.
var landingPad = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// Check says what the program or shared library at path lacks, in a word and a remedy each; none: it is as it is to be
// shipped. The error says that the file could not be judged.
func Check(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	if f.Type != elf.ET_DYN && f.Type != elf.ET_EXEC {
		return nil, fmt.Errorf("%s: found %v, expected a program or a shared library", path, f.Type)
	}
	imports, err := f.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("read the imports of %s: %w", path, err)
	}
	lacks := append(lacksOfLinker(f), lacksOfCompiler(f, imports)...)
	if isGo(f) || f.Machine != elf.EM_X86_64 {
		// Go's own code has no landing pads, so the linker leaves the mark out. A stack of Go has probes of its own.
		return lacks, nil
	}
	more, err := lacksOfX86(f)
	return append(lacks, more...), err
}

func isGo(f *elf.File) bool { return f.Section(".go.buildinfo") != nil }

func lacksOfLinker(f *elf.File) []string {
	var lacks []string
	if f.Type != elf.ET_DYN {
		lacks = append(lacks, "PIE: the program has a fixed address; build it with -buildmode=pie or -pie")
	}
	var relro bool
	stack := "no GNU_STACK header"
	for _, segment := range f.Progs {
		switch segment.Type {
		case elf.PT_GNU_RELRO:
			relro = true
		case elf.PT_GNU_STACK:
			stack = ""
			if segment.Flags&elf.PF_X != 0 {
				stack = "it is executable"
			}
		}
		if segment.Type == elf.PT_LOAD && segment.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			lacks = append(lacks, "W^X: a segment is writable and executable")
		}
	}
	if stack != "" {
		lacks = append(lacks, "stack: "+stack+"; link with -Wl,-z,noexecstack")
	}
	if !relro || !isBoundNow(f) {
		lacks = append(lacks, "full RELRO: link with -Wl,-z,relro,-z,now")
	}
	if len(dynamic(f, elf.DT_TEXTREL)) > 0 {
		lacks = append(lacks, "no text relocations: compile with -fPIC")
	}
	if len(dynamic(f, elf.DT_RPATH))+len(dynamic(f, elf.DT_RUNPATH)) > 0 {
		lacks = append(lacks, "no search path of its own (RUNPATH): install it, which removes the build's")
	}
	return lacks
}

// dynamic gives the values of a tag of the dynamic section; a section that is not there or not readable has none.
func dynamic(f *elf.File, tag elf.DynTag) []uint64 {
	values, err := f.DynValue(tag)
	if err != nil {
		return nil
	}
	return values
}

func isBoundNow(f *elf.File) bool {
	for _, flags := range dynamic(f, elf.DT_FLAGS_1) {
		if elf.DynFlag1(flags)&elf.DF_1_NOW != 0 {
			return true
		}
	}
	for _, flags := range dynamic(f, elf.DT_FLAGS) {
		if elf.DynFlag(flags)&elf.DF_BIND_NOW != 0 {
			return true
		}
	}
	return len(dynamic(f, elf.DT_BIND_NOW)) > 0
}

func lacksOfCompiler(f *elf.File, imports []elf.ImportedSymbol) []string {
	var protector, fortified bool
	for _, symbol := range imports {
		protector = protector || symbol.Name == "__stack_chk_fail"
		fortified = fortified || (strings.HasPrefix(symbol.Name, "__") && strings.HasSuffix(symbol.Name, "_chk"))
	}
	var lacks []string
	if !protector {
		lacks = append(lacks, "stack protector: compile with -fstack-protector-strong")
	}
	if !fortified {
		lacks = append(lacks, "checked calls of libc: compile with -O2 -D_FORTIFY_SOURCE=3")
	}
	return lacks
}

func lacksOfX86(f *elf.File) ([]string, error) {
	text := f.Section(".text")
	if text == nil {
		return nil, errors.New("no section .text; expected one")
	}
	code, err := text.Data()
	if err != nil {
		return nil, fmt.Errorf("read section .text: %w", err)
	}
	var lacks []string
	if !bytes.Contains(code, stackProbe) {
		lacks = append(lacks, "stack probes: compile with -fstack-clash-protection")
	}
	features, err := x86Features(f)
	if err != nil {
		return nil, err
	}
	if features&featureShadowStack == 0 {
		lacks = append(lacks, "the mark of shadow stacks (CET): link with -Wl,-z,shstk")
	}
	name, err := exportWithoutPad(f)
	if err != nil {
		return nil, err
	}
	if name != "" {
		lacks = append(lacks, fmt.Sprintf("landing pads (CET), such as in %s: compile with -fcf-protection=full", name))
	}
	return lacks, nil
}

// exportWithoutPad names a function that the library shows and that does not begin with a landing pad. The mark of them
// is not read: a compiler's own start files, such as Debian's, may have none, and then the linker leaves the mark out.
func exportWithoutPad(f *elf.File) (string, error) {
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return "", fmt.Errorf("read the dynamic symbols: %w", err)
	}
	for _, symbol := range symbols {
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC || symbol.Section == elf.SHN_UNDEF {
			continue
		}
		if int(symbol.Section) >= len(f.Sections) {
			return "", fmt.Errorf("symbol %s: section %d, expected at most %d", symbol.Name, symbol.Section,
				len(f.Sections)-1)
		}
		section := f.Sections[symbol.Section]
		start := make([]byte, len(landingPad))
		if _, err := section.ReadAt(start, int64(symbol.Value-section.Addr)); err != nil {
			return "", fmt.Errorf("read function %s: %w", symbol.Name, err)
		}
		if !bytes.Equal(start, landingPad) {
			return symbol.Name, nil
		}
	}
	return "", nil
}

// x86Features reads the note of GNU properties: a header of 16 bytes with the name GNU, then properties of type,
// length and value, each aligned to 8.
func x86Features(f *elf.File) (uint32, error) {
	section := f.Section(".note.gnu.property")
	if section == nil {
		return 0, nil
	}
	note, err := section.Data()
	if err != nil {
		return 0, fmt.Errorf("read section .note.gnu.property: %w", err)
	}
	if len(note) < 16 || binary.LittleEndian.Uint32(note[8:]) != noteGNUProperty || string(note[12:16]) != "GNU\x00" {
		return 0, errors.New("section .note.gnu.property: expected a note of GNU properties")
	}
	for rest := note[16:]; len(rest) >= 8; {
		kind, length := binary.LittleEndian.Uint32(rest), int(binary.LittleEndian.Uint32(rest[4:]))
		if length < 0 || length > len(rest)-8 {
			return 0, fmt.Errorf("section .note.gnu.property: a property of %d bytes, expected at most %d", length,
				len(rest)-8)
		}
		if kind == propertyX86Feature && length >= 4 {
			return binary.LittleEndian.Uint32(rest[8:]), nil
		}
		rest = rest[min(len(rest), 8+(length+7)/8*8):]
	}
	return 0, nil
}
