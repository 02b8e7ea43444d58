package kfuzz;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;

/** Shows the kfuzz vectors to a decoder of Kafka record batches: a dynamic test of JUnit 5 for each. */
public final class Vectors {
    /** A header of a record; a null value is null. */
    public record Header(String key, byte[] value) {
    }

    /** What a consumer gets; a null key or value is null, an empty one is not. Messages of magic 0 have the timestamp -1. */
    public record Rec(long offset, long timestamp, byte[] key, byte[] value, List<Header> headers) {
    }

    /**
     * Returns the records in the batches of a fetch; throws if a consumer must not read them. Records of control batches
     * are left out.
     */
    @FunctionalInterface
    public interface Decoder {
        List<Rec> decode(byte[] data) throws Exception;
    }

    /**
     * Says which vectors are shown.
     *
     * @param match ids, or the folders they are in, such as records/v2/codec; empty means all
     * @param codecs what the decoder supports; vectors that need more are skipped; empty means all
     * @param magics the same for magics
     * @param expected ids that fail, each with the reason; one that passes is a failure, so that the list stays true
     * @param bombs a folder with the bytes of the vectors that are too large for this artefact, which `kfuzz vectors copy
     *     --bombs` makes by their recipes; null skips them
     */
    public record Options(
            List<String> match, Set<String> codecs, Set<Integer> magics, Map<String, String> expected, Path bombs) {
        /** Shows all vectors except bombs. */
        public static final Options ALL = new Options(List.of(), Set.of(), Set.of(), Map.of(), null);

        /** Only these ids or folders. */
        public Options matching(String... names) {
            return new Options(List.of(names), codecs, magics, expected, bombs);
        }

        /** Also with a vector that fails. */
        public Options failing(String id, String reason) {
            Map<String, String> more = new java.util.TreeMap<>(expected);
            more.put(id, reason);
            return new Options(match, codecs, magics, more, bombs);
        }
    }

    private Vectors() {
    }

    /** A test for each vector, for a method with {@code @TestFactory}. */
    public static Stream<DynamicTest> tests(Decoder decoder, Options options) {
        List<JsonNode> vectors = StreamSupport.stream(suite().get("vectors").spliterator(), false).toList();
        List<String> ids = vectors.stream().map(Vectors::id).toList();
        for (String id : options.expected().keySet()) {
            Assertions.assertTrue(ids.contains(id), "there is no vector " + id + ", which is expected to fail");
        }
        List<JsonNode> chosen = vectors.stream().filter(vector -> matches(id(vector), options.match())).toList();
        Assertions.assertFalse(chosen.isEmpty(), "no vector matches " + options.match());
        return chosen.stream().map(one -> DynamicTest.dynamicTest(id(one), () -> run(one, decoder, options)));
    }

    private static void run(JsonNode vector, Decoder decoder, Options options) throws IOException {
        String reason = missing(vector, options);
        Assumptions.assumeTrue(reason == null, reason);
        String problem = problem(vector, decoder, bytes(vector, options.bombs()));
        String why = options.expected().get(id(vector));
        if (why != null) {
            Assertions.assertNotNull(problem, "passes, but is expected to fail: " + why);
            Assumptions.abort("fails as expected: " + why + " (" + problem + ")");
        }
        Assertions.assertNull(problem, vector.get("summary").asText());
    }

    private static JsonNode suite() {
        try (InputStream data = Vectors.class.getResourceAsStream("vectors.json")) {
            return new ObjectMapper().readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String id(JsonNode vector) {
        return vector.get("id").asText();
    }

    private static boolean matches(String id, List<String> match) {
        return match.isEmpty() || match.stream().anyMatch(one -> (id + "/").startsWith(one.replaceAll("/$", "") + "/"));
    }

    private static String missing(JsonNode vector, Options options) {
        for (JsonNode codec : vector.get("codecs")) {
            if (!options.codecs().isEmpty() && !options.codecs().contains(codec.asText())) {
                return "needs codec " + codec.asText();
            }
        }
        for (JsonNode magic : vector.get("magics")) {
            if (!options.magics().isEmpty() && !options.magics().contains(magic.asInt())) {
                return "needs magic " + magic.asInt();
            }
        }
        return vector.has("recipe") && options.bombs() == null ? "is a bomb, and the options name no folder of bombs" : null;
    }

    private static byte[] bytes(JsonNode vector, Path bombs) throws IOException {
        if (!vector.has("recipe")) {
            return unhex(vector.get("hex"));
        }
        String recipe = vector.get("recipe").asText();
        byte[] data = Files.readAllBytes(bombs.resolve(recipe + ".bin"));
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(data);
            Assertions.assertEquals(vector.get("sha256").asText(), HexFormat.of().formatHex(digest),
                    recipe + ".bin holds other bytes; make it again with `kfuzz vectors copy --bombs`");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
        return data;
    }

    /** Says what is wrong with the decoder's answer; returns null if it is right. */
    static String problem(JsonNode vector, Decoder decoder, byte[] data) {
        String verdict = vector.get("verdict").asText();
        List<Rec> records;
        try {
            records = decoder.decode(data);
        } catch (Exception | StackOverflowError | OutOfMemoryError error) {
            return verdict.equals("valid") ? "refused, but it is valid: " + error : null;
        }
        if (verdict.equals("invalid")) {
            return "accepted, but it is invalid";
        }
        JsonNode stated = vector.get("records");
        if (stated != null && stated.size() != records.size()) {
            return records.size() + " records, expected " + stated.size();
        }
        for (int i = 0; stated != null && i < records.size(); i++) {
            List<Object> have = shown(records.get(i));
            List<Object> want = shown(rec(stated.get(i)));
            if (!have.equals(want)) {
                return "record " + i + " is " + have + ", expected " + want;
            }
        }
        return null;
    }

    private static Rec rec(JsonNode stated) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : stated.get("headers")) {
            headers.add(new Header(new String(unhex(pair.get(0)), java.nio.charset.StandardCharsets.UTF_8), unhex(pair.get(1))));
        }
        return new Rec(stated.get("offset").asLong(), stated.get("timestamp").asLong(), unhex(stated.get("key")),
                unhex(stated.get("value")), headers);
    }

    /** In a form that can be compared and printed. */
    private static List<Object> shown(Rec record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), hex(header.value())));
        }
        return Arrays.asList(record.offset(), record.timestamp(), hex(record.key()), hex(record.value()), headers);
    }

    private static byte[] unhex(JsonNode text) {
        return text.isNull() ? null : HexFormat.of().parseHex(text.asText());
    }

    private static String hex(byte[] data) {
        return data == null ? null : HexFormat.of().formatHex(data);
    }
}
