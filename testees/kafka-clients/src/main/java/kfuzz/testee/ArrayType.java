package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.function.Supplier;

/** An array: a list, or for elements with a map key, a collection that keeps their order and duplicates. */
record ArrayType(ValueType element, Supplier<Collection<Object>> empty) implements ValueType {

    static ArrayType of(ValueType element, Class<?> java) {
        return new ArrayType(element, Collection.class.isAssignableFrom(java) && !java.isInterface()
            ? () -> Reflection.collection(java) : ArrayList::new);
    }

    @Override
    public void write(JsonGenerator json, Object value, short version) throws IOException {
        json.writeStartArray();
        for (Object item : (Collection<?>) value)
            element.write(json, item, version);
        json.writeEndArray();
    }

    @Override
    public Object read(JsonNode json) {
        if (!json.isArray())
            throw new BadMessageException("must be an array");
        Collection<Object> items = empty.get();
        int index = 0;
        for (JsonNode item : json) {
            try {
                items.add(element.read(item));  // Never null: a collection with keys would skip it silently.
            } catch (BadMessageException e) {
                throw e.within("[" + index + "]");
            }
            index++;
        }
        return items;
    }
}
