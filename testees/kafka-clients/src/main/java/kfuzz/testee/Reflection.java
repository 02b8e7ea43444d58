package kfuzz.testee;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.common.protocol.Message;

/** Access to Kafka's generated classes by name. Their exceptions are passed on unwrapped. */
final class Reflection {
    private Reflection() {}

    static Class<?> named(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException e) {
            throw notAsDefined(e);
        }
    }

    /** The class {@code name} from the first package that has it. Package names end with a dot. */
    static Class<?> named(List<String> packages, String name) {
        for (String prefix : packages)
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        throw notAsDefined(new ClassNotFoundException(name + " in none of " + packages));
    }

    static Method method(Class<?> type, String name, Class<?>... parameters) {
        try {
            return type.getMethod(name, parameters);
        } catch (NoSuchMethodException e) {
            throw notAsDefined(e);
        }
    }

    static Message message(Class<?> type) {
        return (Message) make(type);
    }

    @SuppressWarnings("unchecked")
    static Collection<Object> collection(Class<?> type) {
        return (Collection<Object>) make(type);
    }

    private static Object make(Class<?> type) {
        try {
            return type.getConstructor().newInstance();
        } catch (InvocationTargetException e) {
            throw cause(e);
        } catch (ReflectiveOperationException e) {
            throw notAsDefined(e);
        }
    }

    static Object call(Method method, Object target, Object... arguments) {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw cause(e);
        } catch (ReflectiveOperationException e) {
            throw notAsDefined(e);
        }
    }

    private static RuntimeException cause(InvocationTargetException failure) {
        if (failure.getCause() instanceof Error error)
            throw error;
        return (RuntimeException) failure.getCause();  // Generated classes throw no checked exceptions.
    }

    private static IllegalStateException notAsDefined(ReflectiveOperationException failure) {
        return new IllegalStateException("a generated class is not what its definition says", failure);
    }
}
