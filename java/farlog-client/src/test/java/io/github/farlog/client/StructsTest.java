package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.StructLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The structures written down in Java against those that the C compiler makes of the headers. */
class StructsTest {
    @Test
    void shouldHaveTheOffsetsOfTheCCompiler(@TempDir final Path folder) throws Exception {
        final Path source = folder.resolve("offsets.c");
        Files.writeString(source,
            "#include <farlog/replace.h>\n#include <farlog/route_name.h>\n#include <stdio.h>\nint main(void)\n{\n"
                + Structs.ALL.stream().map(StructsTest::printing).collect(Collectors.joining()) + "\treturn 0;\n}\n");
        final Path program = folder.resolve("offsets");
        final Path include = Programs.repository().resolve("rdma/include");
        Programs.run("cc", "-I", include.toString(), "-o", program.toString(), source.toString());
        final String expected = Structs.ALL.stream().map(StructsTest::described).collect(Collectors.joining());
        assertEquals(Programs.run(program.toString()), expected);
    }

    private static String printing(final StructLayout struct) {
        final String name = struct.name().orElseThrow();
        return struct.memberLayouts().stream().map(m -> m.name().orElseThrow())
            .map(m -> "\tprintf(\"" + name + " " + m + " %zu %zu\\n\", offsetof(struct " + name + ", " + m
                + "), sizeof(((struct " + name
                + " *)0)->" + m + "));\n")
            .collect(Collectors.joining()) + "\tprintf(\"" + name + " %zu\\n\", sizeof(struct " + name + "));\n";
    }

    private static String described(final StructLayout struct) {
        final String name = struct.name().orElseThrow();
        final StringBuilder text = new StringBuilder();
        for (final MemoryLayout member : struct.memberLayouts()) {
            final String field = member.name().orElseThrow();
            text.append(name).append(' ').append(field).append(' ')
                .append(struct.byteOffset(PathElement.groupElement(field))).append(' ')
                .append(member.byteSize()).append('\n');
        }
        return text.append(name).append(' ').append(struct.byteSize()).append('\n').toString();
    }
}
