/* Makes an allocation of the interpreter's fail on purpose, and counts the blocks that are in use.
 *
 * A hook stands in front of all three domains (PyMem_RawMalloc, PyMem_Malloc, PyObject_Malloc). It fails only inside
 * call(), and only in the thread that called it. Compiled and run by failing_run.py. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <string.h>

enum { FRAMES_MOST = 64 };

static PyMemAllocatorEx before[3];
/* Blocks in use that were asked for since the hook stands there; other threads change it too. */
static int64_t live;
/* Inside call(): how many were asked for, the first that fails (0: none), how many fail from there on, how many did. */
static __thread int inside;
static __thread int64_t asked, first, most, failed;
static char spared[64];

/* Some allocations never fail, for what then goes wrong is not ours:
 * - those of tracebacks: CPython 3.11 drops the exception that is on its way where it cannot make a frame for it
 *   (take_ownership in frame.c), and what Cython has made of `except` uses a traceback that is not there;
 * - those of functions, which each generator expression and each lambda makes: CPython 3.12 then gives their code back
 *   once too often, and crashes when that is used again;
 * - those of a type that is made from its members: where the type itself gets no memory, CPython 3.11 loses a block in
 *   some runs, and the cause is not known;
 * - the pair of an iterator over a dict's items: CPython 3.11 then frees an iterator that it has not told the collector of;
 * - the room of a list that is made of a tuple: CPython 3.11 then keeps the tuple for good.
 * They are known by where they are asked for: the two innermost places behind the allocator's own functions. Those that
 * have no name are learned when this module is imported. */
typedef struct {
    void *inner, *outer;
} spot;
enum { SPOTS = 3 };
static spot granted[SPOTS];
static spot *learning;

static int is_allocator(const char *name)
{
    return name != NULL && (!strncmp(name, "PyMem_", 6) || !strncmp(name, "PyObject_", 9) || !strcmp(name, "PyType_GenericAlloc")
                            || !strncmp(name, "_PyObject_GC_New", 16));
}

static int never_fails(const char *name)
{
    return name != NULL && (!strcmp(name, "PyFrame_New") || !strcmp(name, "PyCode_NewEmpty")
                            || !strcmp(name, "PyTraceBack_Here") || !strcmp(name, "PyFunction_NewWithQualName")
                            || !strcmp(name, "PyType_FromModuleAndSpec"));
}

/* Who asked for what failed: the path of the library whose code is the innermost but for the interpreter's below its loop
 * over bytecode; empty for the interpreter, or where several have asked. */
static char asker[512];

/* Whether the allocation that is asked for here may fail. */
static int may_fail(void)
{
    void *frames[FRAMES_MOST];
    Dl_info self, frame;
    const char *by = "";
    int i, k, count, places = 0;
    dladdr((void *) may_fail, &self);
    count = backtrace(frames, FRAMES_MOST);
    for (i = 0; i < count; i++) {
        if (!dladdr(frames[i], &frame) || frame.dli_fname == NULL || frame.dli_fbase == self.dli_fbase)
            continue;
        if (places == 0 && !is_allocator(frame.dli_sname) && i + 1 < count) {
            places = 1;
            if (learning != NULL)
                *learning = (spot) {frames[i], frames[i + 1]};
            for (k = 0; k < SPOTS; k++)
                if (frames[i] == granted[k].inner && (k == 0 || frames[i + 1] == granted[k].outer))
                    return 0;
        }
        if (never_fails(frame.dli_sname))
            return 0;
        if (frame.dli_sname != NULL && !strcmp(frame.dli_sname, "_PyEval_EvalFrameDefault"))
            break;
        /* An extension module that is not part of the interpreter. */
        if ((strstr(frame.dli_fname, ".cpython-") || strstr(frame.dli_fname, ".abi3."))
            && !strstr(frame.dli_fname, "/lib-dynload/")) {
            by = frame.dli_fname;
            break;
        }
    }
    if (learning != NULL || (spared[0] && strstr(by, spared)))
        return 0;
    if (failed == 0)
        snprintf(asker, sizeof asker, "%s", by);
    else if (strcmp(asker, by))
        asker[0] = 0;
    return 1;
}

static int fails(void)
{
    int so;
    if (!inside)
        return 0;
    asked++;
    if (first == 0 || asked < first || asked >= first + most)
        return 0;
    inside = 0;
    so = may_fail();
    inside = 1;
    failed += so;
    return so;
}

static void *counted(void *block)
{
    if (block != NULL)
        __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return block;
}

static void *hook_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *domain = context;
    return fails() ? NULL : counted(domain->malloc(domain->ctx, size));
}

static void *hook_calloc(void *context, size_t count, size_t size)
{
    PyMemAllocatorEx *domain = context;
    return fails() ? NULL : counted(domain->calloc(domain->ctx, count, size));
}

static void *hook_realloc(void *context, void *block, size_t size)
{
    PyMemAllocatorEx *domain = context;
    void *moved;
    if (fails())
        return NULL;
    moved = domain->realloc(domain->ctx, block, size);
    return block == NULL ? counted(moved) : moved;
}

static void hook_free(void *context, void *block)
{
    PyMemAllocatorEx *domain = context;
    if (block != NULL)
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    domain->free(domain->ctx, block);
}

/* call(function, n, m, spare): function(), of whose allocations m fail from the n-th on; none for n = 0, and none that a
 * library with `spare` in its path asks for. */
static PyObject *call(PyObject *module, PyObject *arguments)
{
    PyObject *function, *result;
    const char *spare;
    long long from, count;
    if (!PyArg_ParseTuple(arguments, "OLLs", &function, &from, &count, &spare))
        return NULL;
    snprintf(spared, sizeof spared, "%s", spare);
    asker[0] = 0;
    asked = failed = 0;
    first = from;
    most = count;
    inside = 1;
    result = PyObject_CallNoArgs(function);
    inside = 0;
    return result;
}

/* counts(): of the last call, how many were asked for, how many failed, who asked for those; and the blocks in use. */
static PyObject *counts(PyObject *module, PyObject *none)
{
    return Py_BuildValue("LLsL", (long long) asked, (long long) failed, asker,
                         (long long) __atomic_load_n(&live, __ATOMIC_RELAXED));
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, NULL},
    {"counts", counts, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "failing", NULL, -1, methods, NULL, NULL, NULL, NULL};

/* Ask for each of those whose place has no name; the last allocation of each is the one. */
static int learn(void)
{
    PyObject *pairs[3000], *dict = PyDict_New(), *items, *made[2];
    int i;
    /* Used ones must not serve again. */
    for (i = 0; i < 3000; i++)
        pairs[i] = PyTuple_Pack(2, Py_None, Py_None);
    items = dict ? PyObject_CallMethod(dict, "items", NULL) : NULL;
    if (items == NULL)
        return -1;
    first = 1;
    most = INT64_MAX / 2;
    inside = 1;
    learning = &granted[0];
    PyEval_GetFrame();
    learning = &granted[1];
    made[0] = PyObject_GetIter(items);
    learning = &granted[2];
    made[1] = PySequence_List(pairs[0]);
    inside = 0;
    learning = NULL;
    for (i = 0; i < 3000; i++)
        Py_XDECREF(pairs[i]);
    Py_XDECREF(made[0]);
    Py_XDECREF(made[1]);
    Py_DECREF(items);
    Py_DECREF(dict);
    return 0;
}

PyMODINIT_FUNC PyInit_failing(void)
{
    PyObject *module;
    static const PyMemAllocatorDomain domains[3] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
    int i;
    for (i = 0; i < 3; i++) {
        PyMemAllocatorEx hook = {&before[i], hook_malloc, hook_calloc, hook_realloc, hook_free};
        PyMem_GetAllocator(domains[i], &before[i]);
        PyMem_SetAllocator(domains[i], &hook);
    }
    module = PyModule_Create(&definition);
    if (module == NULL || learn() < 0)
        return NULL;
    return module;
}
