package io.github.farlog.client;

import java.util.List;

/** The rings that a URI names: {@code members:K URI URI ...} several, any other one. */
final class Members {
    private static final String SCHEME = "members:";

    private Members() {
    }

    /** The URIs of the rings. Whether they are as they should be, the library says. */
    static List<String> of(final String uri) {
        if (uri == null || !uri.startsWith(SCHEME)) {
            return List.of(String.valueOf(uri));
        }
        final String[] words = uri.split(" ");
        return List.of(words).subList(1, words.length);
    }

    /** How many of them an acknowledgement needs; 1 of a URI that says it wrong, or has no members. */
    static int needed(final String uri) {
        final String first = uri.split(" ", 2)[0];
        try {
            return first.startsWith(SCHEME) ? Integer.parseInt(first.substring(SCHEME.length())) : 1;
        } catch (final NumberFormatException e) {
            return 1; // refused at open
        }
    }
}
