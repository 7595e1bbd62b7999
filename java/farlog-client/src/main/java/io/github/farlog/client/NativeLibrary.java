package io.github.farlog.client;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.net.URISyntaxException;
import java.net.URL;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.CodeSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Finds and loads {@code libfarlog.so}. The first of these that is there is taken: <ol> <li>the file, or the file in
 * the folder, that the property {@code farlog.library.path} names; when it is set, nothing else is tried; <li>beside
 * the jar of this package, when that is a file of its own; <li>inside that jar, unpacked into a file that only this
 * user can read and that is gone when the library is loaded; <li>the folders of {@code java.library.path}. </ol> A
 * library for another processor or of another version is refused: the {@link UnsatisfiedLinkError} says which it is,
 * and names every place that was looked at.
 */
public final class NativeLibrary {
    /** Property that names the library's file or folder. */
    public static final String PATH_PROPERTY = "farlog.library.path";
    private static final int VERSION_LEN_MAX = 64;
    static final String FILE_NAME = "libfarlog.so";

    private final List<String> tried = new ArrayList<>();

    private NativeLibrary() {
    }

    /**
     * Loads it for the life of the process. Whatever goes wrong is an error with a text: an exception would end a
     * static block without one.
     */
    static SymbolLookup load() {
        final NativeLibrary library = new NativeLibrary();
        try {
            return library.find();
        } catch (final RuntimeException e) {
            throw library.failure(e + cure(e), e);
        }
    }

    private static String cure(final RuntimeException e) {
        if (e instanceof IllegalCallerException) {
            final Module module = NativeLibrary.class.getModule();
            return "; start Java with --enable-native-access=" + (module.isNamed() ? module.getName() : "ALL-UNNAMED");
        }
        return "";
    }

    private SymbolLookup find() {
        final String wanted = System.getProperty(PATH_PROPERTY);
        if (wanted != null && !wanted.isEmpty()) {
            final Path path = Path.of(wanted);
            return require(open(Files.isDirectory(path) ? path.resolve(FILE_NAME) : path, PATH_PROPERTY));
        }
        final Path beside = besideJar();
        SymbolLookup found = beside == null ? null : open(beside, "beside the jar");
        if (found == null) {
            found = openPacked();
        }
        for (final String folder : System.getProperty("java.library.path", "").split(java.io.File.pathSeparator)) {
            if (found == null && !folder.isEmpty()) {
                found = open(Path.of(folder, FILE_NAME), "java.library.path");
            }
        }
        return require(found);
    }

    private SymbolLookup require(final SymbolLookup found) {
        if (found == null) {
            throw new UnsatisfiedLinkError("farlog: " + FILE_NAME + " was not found; tried " + String.join(", ", tried)
                + "; build it with scripts/java.sh native and set -D" + PATH_PROPERTY + "=FILE");
        }
        return found;
    }

    /** The library at path; null when there is no such file. */
    private SymbolLookup open(final Path path, final String place) {
        tried.add(path + " (" + place + ")");
        if (!Files.isRegularFile(path)) {
            return null;
        }
        checkMachine(path);
        final SymbolLookup library;
        try {
            library = SymbolLookup.libraryLookup(path.toAbsolutePath(), Arena.global());
        } catch (final IllegalArgumentException refused) {
            throw failure(path + " cannot be loaded: " + refused.getMessage(), refused);
        }
        checkVersion(path, library);
        return library;
    }

    /** Before 1.0 another minor number may have other structures; a patch keeps them. */
    private void checkVersion(final Path path, final SymbolLookup library) {
        final MemorySegment function = library.find("farlog_version")
            .orElseThrow(() -> failure(path + " is no libfarlog, or one older than " + NativeVersion.WANTED, null));
        final String found;
        try {
            final MethodHandle call = Linker.nativeLinker().downcallHandle(function,
                FunctionDescriptor.of(ValueLayout.ADDRESS));
            found = ((MemorySegment) call.invokeExact()).reinterpret(VERSION_LEN_MAX).getString(0);
        } catch (final Throwable thrown) {
            throw failure(path + " does not tell its version: " + thrown.getMessage(), thrown);
        }
        if (!minor(found).equals(minor(NativeVersion.WANTED))) {
            throw failure(path + " has version " + found + ", this client needs " + minor(NativeVersion.WANTED) + ".x",
                null);
        }
    }

    private static String minor(final String version) {
        return version.substring(0, Math.max(version.lastIndexOf('.'), 0));
    }

    private UnsatisfiedLinkError failure(final String why, final Throwable cause) {
        final UnsatisfiedLinkError error = new UnsatisfiedLinkError(
            "farlog: " + why + (tried.isEmpty() ? "" : "; tried " + String.join(", ", tried)));
        error.initCause(cause);
        return error;
    }

    /** The dynamic loader's own words for this are not to be understood. */
    private void checkMachine(final Path path) {
        final ByteBuffer head = ByteBuffer.allocate(20).order(ByteOrder.LITTLE_ENDIAN);
        try (FileChannel file = FileChannel.open(path)) {
            file.read(head, 0);
        } catch (final IOException e) {
            throw failure(path + " cannot be read: " + e.getMessage(), e);
        }
        if (head.position() < head.capacity() || head.getInt(0) != 0x464C457F) {
            throw failure(path + " is no ELF library", null);
        }
        final String machine = machineName(head.getShort(18));
        if (!machine.equals(architecture())) {
            throw failure(path + " is for " + machine + ", this JVM is for " + architecture(), null);
        }
    }

    private static String machineName(final short machine) {
        return switch (machine) {
            case 62 -> "x86_64";
            case 183 -> "aarch64";
            case 243 -> "riscv64";
            default -> "machine " + machine;
        };
    }

    /** The processor as Linux names it. */
    static String architecture() {
        final String name = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return name.equals("amd64") ? "x86_64" : name;
    }

    /** Null when there is no such folder: the jar is inside another one, or not a file at all. */
    private static Path besideJar() {
        final CodeSource source = NativeLibrary.class.getProtectionDomain().getCodeSource();
        final URL location = source == null ? null : source.getLocation();
        if (location == null || !"file".equalsIgnoreCase(location.getProtocol())) {
            return null;
        }
        try {
            return Path.of(location.toURI()).resolveSibling(FILE_NAME);
        } catch (final URISyntaxException | RuntimeException e) {
            return null;
        }
    }

    private SymbolLookup openPacked() {
        final String name = "/natives/linux-" + architecture() + "/" + FILE_NAME;
        final URL packed = NativeLibrary.class.getResource(name);
        if (packed == null) {
            tried.add("jar:" + name + " (inside the jar)");
            return null;
        }
        try {
            final Path folder = Files.createTempDirectory("farlog",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
            final Path file = folder.resolve(FILE_NAME);
            try (InputStream in = packed.openStream()) {
                Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
                return open(file, "inside the jar");
            } finally {
                Files.deleteIfExists(file);
                Files.deleteIfExists(folder);
            }
        } catch (final IOException e) {
            throw failure("unpack " + packed + ": " + e
                + "; set -Djava.io.tmpdir=FOLDER, one that can be written to, or -D" + PATH_PROPERTY
                + "=FILE", e);
        }
    }
}
