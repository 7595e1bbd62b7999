package io.github.farlog.client;

import static io.github.farlog.client.Structs.CLASS_RANGE;
import static io.github.farlog.client.Structs.ROUTE_CONFIG;
import static io.github.farlog.client.Structs.ROUTE_LEG;
import static io.github.farlog.client.Structs.ROUTE_OPTIONS;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;

/** What opening a route takes, in the memory of that call. */
final class Legs {
    private Legs() {
    }

    /** All but the name. */
    static MemorySegment config(final Arena arena, final List<RouteLeg> legs) throws FarlogException {
        final MemorySegment all = arena.allocate(ROUTE_LEG, Math.max(1, legs.size()));
        for (int i = 0; i < legs.size(); i++) {
            fill(arena, all.asSlice(i * ROUTE_LEG.byteSize(), ROUTE_LEG), legs.get(i));
        }
        final MemorySegment config = arena.allocate(ROUTE_CONFIG);
        Structs.setLong(config, ROUTE_CONFIG, "legs", all.address());
        Structs.setInt(config, ROUTE_CONFIG, "leg_count", legs.size());
        return config;
    }

    private static void fill(final Arena arena, final MemorySegment s, final RouteLeg leg) throws FarlogException {
        Structs.setLong(s, ROUTE_LEG, "name", NativeCalls.text(arena, "leg's name", leg.name()));
        Structs.setLong(s, ROUTE_LEG, "uri", NativeCalls.text(arena, "uri", leg.uri()));
        Structs.setLong(s, ROUTE_LEG, "classes", classes(arena, leg.classes()));
        Structs.setInt(s, ROUTE_LEG, "class_count", leg.classes().size());
        Structs.setInt(s, ROUTE_LEG, "criticality_min", leg.criticalityMin());
        Structs.setInt(s, ROUTE_LEG, "is_required", leg.required() ? 1 : 0);
        Structs.setInt(s, ROUTE_LEG, "policy", leg.policy().ordinal());
        Structs.setLong(s, ROUTE_LEG, "spill_uri", NativeCalls.text(arena, "spill", leg.spillUri()));
        Structs.setInt(s, ROUTE_LEG, "spill_level", leg.spillLevel() == null ? 0 : leg.spillLevel().code());
        Structs.setLong(s, ROUTE_LEG, "buffer_bytes", leg.bufferBytes());
        s.asSlice(Structs.off(ROUTE_LEG, "config"), Structs.WRITER_CONFIG.byteSize())
            .copyFrom(NativeCalls.writerConfig(arena, leg.uri(), leg.options()));
    }

    private static long classes(final Arena arena, final List<RouteLeg.Classes> ranges) {
        final MemorySegment all = arena.allocate(CLASS_RANGE, Math.max(1, ranges.size()));
        for (int i = 0; i < ranges.size(); i++) {
            final long at = i * CLASS_RANGE.byteSize();
            all.set(ValueLayout.JAVA_SHORT, at + Structs.off(CLASS_RANGE, "first"), (short) ranges.get(i).first());
            all.set(ValueLayout.JAVA_SHORT, at + Structs.off(CLASS_RANGE, "last"), (short) ranges.get(i).last());
        }
        return all.address();
    }

    static MemorySegment options(final Arena arena, final RouteOptions options) throws FarlogException {
        final MemorySegment s = arena.allocate(ROUTE_OPTIONS);
        Structs.setLong(s, ROUTE_OPTIONS, "spill_dir", NativeCalls.text(arena, "spill folder", options.spillDir()));
        Structs.setLong(s, ROUTE_OPTIONS, "writer_name", NativeCalls.text(arena, "writer name", options.name()));
        Structs.setLong(s, ROUTE_OPTIONS, "counters_dir",
            NativeCalls.text(arena, "counters folder", options.countersDir()));
        Structs.setInt(s, ROUTE_OPTIONS, "wait", options.spinning() ? 1 : 0);
        return s;
    }
}
