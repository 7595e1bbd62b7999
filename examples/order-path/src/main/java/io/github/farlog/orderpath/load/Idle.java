package io.github.farlog.orderpath.load;

import com.lmax.disruptor.BusySpinWaitStrategy;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.YieldingWaitStrategy;

/** What threads of the order path do while there is nothing to do. */
public enum Idle {
    /** Never gives the processor away: for threads with a core each. */
    SPIN {
        @Override
        void pause() {
            Thread.onSpinWait();
        }

        @Override
        WaitStrategy waitStrategy() {
            return new BusySpinWaitStrategy();
        }
    },
    /** Lets others run: for more threads than cores. */
    YIELD {
        @Override
        void pause() {
            Thread.yield();
        }

        @Override
        WaitStrategy waitStrategy() {
            return new YieldingWaitStrategy();
        }
    };

    abstract void pause();

    abstract WaitStrategy waitStrategy();
}
