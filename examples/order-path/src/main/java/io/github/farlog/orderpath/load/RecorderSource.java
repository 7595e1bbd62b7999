package io.github.farlog.orderpath.load;

import io.github.farlog.orderpath.record.Recorder;
import java.util.List;

/** Opens the recorders of one load step; closing them is the caller's. */
@FunctionalInterface
public interface RecorderSource {
    /** @return one recorder for each pair, to be used by one thread each, all on the same stream */
    List<Recorder> open(int pairCount) throws Exception;
}
