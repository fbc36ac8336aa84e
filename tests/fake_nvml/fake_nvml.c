/* A stand-in for libnvidia-ml.so.1, steered by a control file, so that tests and benchmarks meet NVML's real ABI.
 *
 * FAKE_NVML_CONTROL names the file: "key = value" lines, read again whenever the file changes (write it by rename).
 * Keys of a GPU are "<index>.<key>", or "*.<key>" for all of them. Values may hold \xHH escapes. build.py lists the keys.
 * Without the variable every call fails as if there were no driver.
 *
 * Layouts follow nvml.h, API 13. Nothing that changes a GPU's state is exported: a caller that tried would fail.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MAX_GPUS = 64, SLOTS = 8192, KEY = 64, VALUE = 512, MAX_PROCESSES = 256, NAMES = 128 };

enum { MAX_INSTANCES = 8 };
typedef struct { unsigned index; int instance, compute_instance; } Device; /* instance < 0: all of the GPU */
enum { RAW_WORDS = 64, RAW_TIME = 21, RAW_TIME_COPY = 40, RAW_CYCLES = 22, RAW_SHARES = 24 };
typedef struct { unsigned index; int instance; double t; unsigned long long raw[RAW_WORDS]; } Sample;
typedef struct { char key[KEY], value[VALUE]; } Entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Entry *table;
static struct stat seen;
static char seen_path[1024];
static Device devices[MAX_GPUS];
static Device mig_devices[MAX_GPUS][MAX_INSTANCES];
static int initialised, live_samples, live_event_sets;
static struct { const char *name; unsigned long calls; } counts[NAMES];
static int hanging[MAX_GPUS]; /* threads, by their number in the kernel */
static unsigned long xids_delivered[MAX_GPUS];
static int the_event_set;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- the control file ---- */

static Entry *slot(const char *key) {
    unsigned hash = 2166136261u;
    for (const char *c = key; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (unsigned i = 0; i < SLOTS; i++) {
        Entry *entry = &table[(hash + i) % SLOTS];
        if (!entry->key[0] || !strcmp(entry->key, key)) return entry;
    }
    return &table[0];
}

static void unescape(char *out, const char *in) {
    size_t n = 0;
    while (*in && *in != '\n' && n + 1 < VALUE) {
        unsigned byte;
        if (in[0] == '\\' && in[1] == 'x' && sscanf(in + 2, "%2x", &byte) == 1) {
            out[n++] = (char)byte;
            in += 4;
        } else {
            out[n++] = *in++;
        }
    }
    out[n] = 0;
}

static void load(const char *path) {
    struct stat st;
    if (stat(path, &st)) return;
    if (table && !strcmp(path, seen_path) && st.st_ino == seen.st_ino && st.st_size == seen.st_size &&
        st.st_mtim.tv_sec == seen.st_mtim.tv_sec && st.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    if (strcmp(path, seen_path)) memset(xids_delivered, 0, sizeof xids_delivered);
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (!table) table = malloc(SLOTS * sizeof *table);
    memset(table, 0, SLOTS * sizeof *table);
    char line[VALUE + KEY + 8];
    while (fgets(line, sizeof line, file)) {
        char *equals = strstr(line, " = ");
        if (!equals || equals - line >= KEY) continue;
        *equals = 0;
        Entry *entry = slot(line);
        strcpy(entry->key, line);
        unescape(entry->value, equals + 3);
    }
    fclose(file);
    seen = st;
    snprintf(seen_path, sizeof seen_path, "%s", path);
}

/* Copies the value of a key for a GPU (index < 0: of the machine) to `out`; 0 where there is none. */
static int find(int gpu, const char *key, char *out) {
    char full[KEY];
    out[0] = 0;
    pthread_mutex_lock(&lock);
    for (int any = 0; table && any < 2; any++) {
        if (gpu < 0) snprintf(full, sizeof full, "%s", key);
        else if (any) snprintf(full, sizeof full, "*.%s", key);
        else snprintf(full, sizeof full, "%d.%s", gpu, key);
        Entry *entry = slot(full);
        if (entry->key[0]) {
            strcpy(out, entry->value);
            pthread_mutex_unlock(&lock);
            return 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static double number(int gpu, const char *key, double otherwise) {
    char value[VALUE];
    return find(gpu, key, value) ? strtod(value, NULL) : otherwise;
}

/* Keeps all 64 bits, which a double does not. */
static unsigned long long whole(int gpu, const char *key, double otherwise) {
    char value[VALUE];
    return find(gpu, key, value) ? strtoull(value, NULL, 10) : (unsigned long long)otherwise;
}

static void text(int gpu, const char *key, const char *otherwise, char *out, size_t size) {
    char value[VALUE];
    snprintf(out, size, "%s", find(gpu, key, value) ? value : otherwise);
}

/* A number that swings by the relative amplitude "wave", each GPU with its own phase, so that screens have something to draw. */
static double moving(int gpu, const char *key, double otherwise) {
    double wave = number(gpu, "wave", 0);
    return number(gpu, key, otherwise) * (1 + wave * sin(now() * 1.3 + gpu));
}

/* Of a MIG instance: "<gpu>.mig<instance>.<key>"; `words` (may be NULL) takes the text of it. */
static double mig_number(int gpu, int instance, const char *key, double otherwise, char *words) {
    char full[KEY], value[VALUE];
    snprintf(full, sizeof full, "mig%d.%s", instance, key);
    if (!find(gpu, full, value)) return otherwise;
    if (words) strcpy(words, value);
    return strtod(value, NULL);
}

/* ---- what every call does first ---- */

static void count(const char *name) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < NAMES; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (!strcmp(counts[i].name, name)) {
            counts[i].calls++;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void renew(const char *path) {
    pthread_mutex_lock(&lock);
    load(path);
    pthread_mutex_unlock(&lock);
}

/* Puts `tid` where `old` stands in the list of threads that hang; whether it was there. */
static int replace_hanging(int old, int tid) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_GPUS && !found; i++)
        if (hanging[i] == old) {
            hanging[i] = tid;
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Hangs as long as the control file says so. */
static void hang(const char *path, const char *name, int gpu) {
    char key[KEY];
    snprintf(key, sizeof key, "hang.%s", name);
    if (number(gpu, key, number(-1, key, 0)) <= 0) return;
    replace_hanging(0, gettid());
    while (number(gpu, key, number(-1, key, 0)) > 0) {
        struct timespec pause = { 0, 1000000 };
        nanosleep(&pause, NULL);
        renew(path);
    }
    replace_hanging(gettid(), 0);
}

static int begin(const char *name, int gpu) {
    char key[KEY], path[1024];
    const char *control = getenv("FAKE_NVML_CONTROL");
    if (!control) return LIBRARY_NOT_FOUND;
    snprintf(path, sizeof path, "%s", control); /* the environment may change while this hangs */
    renew(path);
    count(name);
    hang(path, name, gpu);
    snprintf(key, sizeof key, "fail.%s", name);
    double everything = strcmp(name, "nvmlGpmSampleFree") ? number(-1, "fail_everything", 0) : 0; /* free needs no driver */
    int code = (int)number(gpu, key, number(-1, key, everything));
    if (code) return code;
    if (strcmp(name, "nvmlInitWithFlags") && !initialised) return UNINITIALIZED;
    if (gpu < 0) return SUCCESS;
    if (number(gpu, "lost", 0) || gpu >= (int)number(-1, "gpus", 1)) return GPU_IS_LOST;
    return (int)number(gpu, "fail_all", 0);
}

#define BEGIN(gpu) do { int code_ = begin(__func__, gpu); if (code_) return code_; } while (0)
#define DEVICE(device) do { if (!(device)) return INVALID_ARGUMENT; BEGIN((int)(device)->index); } while (0)

/* A library that hangs while it is loaded holds the loader's lock: FAKE_NVML_HANG_LOADING is for how many seconds. */
__attribute__((constructor)) static void loading(void) {
    const char *seconds = getenv("FAKE_NVML_HANG_LOADING");
    struct timespec pause = { seconds ? atoi(seconds) : 0, 0 };
    while (nanosleep(&pause, &pause)) {} /* a signal does not end it */
}

/* ---- for tests ---- */

int fake_nvml_live_samples(void) { return live_samples; }
int fake_nvml_live_event_sets(void) { return live_event_sets; }
int fake_nvml_hangs(int tid) { return replace_hanging(tid, tid); }
int fake_nvml_initialised(void) { return initialised; }
unsigned long fake_nvml_calls(const char *name) {
    for (int i = 0; i < NAMES && counts[i].name; i++)
        if (!strcmp(counts[i].name, name)) return counts[i].calls;
    return 0;
}

/* ---- the library ---- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN(-1);
    for (unsigned i = 0; i < MAX_GPUS; i++) devices[i] = (Device){ i, -1, -1 };
    initialised++;
    return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    BEGIN(-1);
    initialised--;
    return SUCCESS;
}
const char *nvmlErrorString(int code) {
    static const char *words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
        "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "Operating System Error", "Driver/library version mismatch",
    };
    return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code] : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN(-1);
    text(-1, "driver", "580.159.04", out, size);
    return SUCCESS;
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    BEGIN(-1);
    text(-1, "nvml", "13.580.159.04", out, size);
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    BEGIN(-1);
    *out = 13000;
    return SUCCESS;
}
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    BEGIN(-1);
    char key[KEY], value[VALUE];
    snprintf(key, sizeof key, "process_name.%u", pid);
    if (!find(-1, key, value)) return NOT_FOUND;
    snprintf(out, size, "%s", value);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN(-1);
    *out = (unsigned)number(-1, "gpus", 1);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if (index >= MAX_GPUS || (initialised && index >= (unsigned)number(-1, "gpus", 1))) return INVALID_ARGUMENT;
    BEGIN((int)index);
    *out = &devices[index];
    return SUCCESS;
}
int nvmlDeviceGetIndex(Device *device, unsigned *out) {
    DEVICE(device);
    *out = device->index;
    return SUCCESS;
}
int nvmlDeviceGetName(Device *device, char *out, unsigned size) {
    DEVICE(device);
    char profile[VALUE] = "";
    text((int)device->index, "name", "NVIDIA H100 80GB HBM3", out, size);
    if (device->instance >= 0) {
        mig_number((int)device->index, device->instance, "profile", 0, profile);
        snprintf(out + strlen(out), size - strlen(out), " MIG %s", profile[0] ? profile : "1g.10gb");
    }
    return SUCCESS;
}
static void uuid(Device *device, char *out, size_t size) {
    char otherwise[64];
    if (device->instance >= 0) {
        unsigned layout = (unsigned)number((int)device->index, "mig_layout", 0);
        snprintf(out, size, "MIG-%08u-0000-0000-%04u-%012d", layout, device->index, device->instance);
        return;
    }
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012u", device->index);
    text((int)device->index, "uuid", otherwise, out, size);
}
int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    DEVICE(device);
    uuid(device, out, size);
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *wanted, Device **out) {
    BEGIN(-1);
    for (unsigned i = 0; i < (unsigned)number(-1, "gpus", 1) && i < MAX_GPUS; i++) {
        char found[96];
        uuid(&devices[i], found, sizeof found);
        if (strcmp(found, wanted)) continue;
        BEGIN((int)i);
        *out = &devices[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;
int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *out) {
    DEVICE(device);
    memset(out, 0, sizeof *out);
    out->bus = device->index + 6;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus);
    return SUCCESS;
}

#define GETTER(function, type, expression)                \
    int function(Device *device, type *out) {             \
        DEVICE(device);                                   \
        int gpu = (int)device->index;                     \
        *out = (type)(expression);                        \
        return SUCCESS;                                   \
    }
GETTER(nvmlDeviceGetNumGpuCores, unsigned, number(gpu, "cores", 16896))
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, number(gpu, "bus_width", 5120))
GETTER(nvmlDeviceGetPowerUsage, unsigned, moving(gpu, "power_mw", 512300))
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, number(gpu, "power_limit_mw", 700000))
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, number(gpu, "clock_reasons", 0))
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, number(gpu, "clock_reasons", 0))
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, whole(gpu, "energy_mj", now() * 512300))
GETTER(nvmlDeviceGetMinorNumber, unsigned, number(gpu, "minor", gpu))
GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, number(gpu, "event_types", 0xff9f))
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, number(gpu, "mig", 0) ? MAX_INSTANCES : 0)

/* ---- field values: "0.field.82 = 45"; "na" is not supported ---- */

typedef struct {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, code;
    union { double d; unsigned ui; unsigned long long ull; int si; } value;
} FieldValue;
enum { TYPE_DOUBLE, TYPE_UNSIGNED, TYPE_ULONG, TYPE_ULONGLONG };

/* Which type an H100 (driver 580) answers a field with; fields that it does not have are not here. */
static int field_type(unsigned id) {
    switch (id) {
        case 82: case 94: case 230: return TYPE_UNSIGNED;
        case 161: case 162: case 163: /* of one NVLink, the scope */
        case 1: case 3: case 4: case 74: case 76: case 142: case 143: case 144: case 145: case 269: case 270: case 271:
            return TYPE_ULONGLONG;
        default: return -1;
    }
}
static double field_default(int gpu, unsigned id) {
    switch (id) {
        case 1: return 1;
        case 82: return moving(gpu, "temperature_memory", 45);
        case 161: return number(gpu, "nvlink_replays", 0);
        default: return 0;
    }
}
int nvmlDeviceGetFieldValues(Device *device, int n, FieldValue *values) {
    DEVICE(device);
    int gpu = (int)device->index;
    for (int i = 0; i < n; i++) {
        char key[KEY], set[VALUE];
        snprintf(key, sizeof key, "field.%u", values[i].id);
        int is_set = find(gpu, key, set);
        values[i].type = is_set && field_type(values[i].id) < 0 ? TYPE_UNSIGNED : field_type(values[i].id);
        int is_link = values[i].id >= 161 && values[i].id <= 163;
        if (values[i].type < 0 || !strcmp(set, "na") || (is_link && values[i].scope >= number(gpu, "nvlinks", 0))) {
            values[i].code = NOT_SUPPORTED;
            values[i].type = TYPE_DOUBLE;
            continue;
        }
        double value = is_set ? strtod(set, NULL) : field_default(gpu, values[i].id);
        values[i].code = SUCCESS;
        if (values[i].type == TYPE_UNSIGNED) values[i].value.ui = (unsigned)value;
        else values[i].value.ull = is_set ? strtoull(set, NULL, 10) : (unsigned long long)value;
    }
    return SUCCESS;
}

/* ---- NVLink: "0.nvlinks = 18" with "0.nvlinks_down = 1"; none unless set ---- */

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *out) {
    DEVICE(device);
    unsigned links = (unsigned)number((int)device->index, "nvlinks", 0);
    if (!links) return NOT_SUPPORTED;
    if (link >= links) return INVALID_ARGUMENT;
    *out = link + (unsigned)number((int)device->index, "nvlinks_down", 0) < links;
    return SUCCESS;
}

/* ---- MIG: "0.mig = 1" and "0.mig_instances = 1 1 2": a GPU instance for each compute instance in it ---- */

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    DEVICE(device);
    char value[VALUE], *save = NULL;
    unsigned n = 0;
    if (!number((int)device->index, "mig", 0)) return NOT_FOUND;
    find((int)device->index, "mig_instances", value);
    for (char *word = strtok_r(value, " ", &save); word && n < MAX_INSTANCES; word = strtok_r(NULL, " ", &save), n++) {
        if (n != index) continue;
        *out = &mig_devices[device->index][n];
        **out = (Device){ device->index, atoi(word), (int)n };
        return SUCCESS;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *out) {
    DEVICE(device);
    *out = (unsigned)device->instance;
    return SUCCESS;
}
typedef struct { unsigned sm, shared[5], gpu_slices, compute_slices; unsigned long long memory_mb; } Attributes;
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *out) {
    DEVICE(device);
    if (device->instance < 0) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->sm = (unsigned)mig_number((int)device->index, device->instance, "sm_count", 16, NULL);
    return SUCCESS;
}

/* ---- shares of the GPU's time: "0.shares = 4242:97 4243:130"; "0.shares_us" is the time stamp, the wall clock unless set ---- */

typedef struct { unsigned pid; unsigned long long time_stamp; unsigned sm, memory, encoder, decoder; } ShareSample;
int nvmlDeviceGetProcessUtilization(Device *device, ShareSample *out, unsigned *count_, unsigned long long since) {
    DEVICE(device);
    int gpu = (int)device->index;
    char value[VALUE], *save = NULL;
    unsigned n = 0, room = *count_;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    unsigned long long t = (unsigned long long)number(gpu, "shares_us", wall.tv_sec * 1e6 + wall.tv_nsec / 1e3);
    if (number(gpu, "mig", 0)) return NOT_SUPPORTED;
    if (t <= since || !find(gpu, "shares", value)) return NOT_FOUND;
    for (char *word = strtok_r(value, " ", &save); word; word = strtok_r(NULL, " ", &save), n++) {
        char *colon = strchr(word, ':');
        if (out && n < room) out[n] = (ShareSample){ (unsigned)atoi(word), t, colon ? (unsigned)atoi(colon + 1) : 0, 0, 0, 0 };
    }
    *count_ = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    DEVICE(device);
    *major = (int)number((int)device->index, "cc_major", 9);
    *minor = (int)number((int)device->index, "cc_minor", 0);
    return SUCCESS;
}
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY };
int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *out) {
    DEVICE(device);
    int gpu = (int)device->index;
    *out = (unsigned)(type == CLOCK_MEMORY ? number(gpu, "memory_mhz", 2619) : moving(gpu, "sm_mhz", 1980));
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int type, unsigned *out) {
    DEVICE(device);
    int gpu = (int)device->index;
    *out = (unsigned)(type == CLOCK_MEMORY ? number(gpu, "max_memory_mhz", 2619) : number(gpu, "max_sm_mhz", 1980));
    return SUCCESS;
}
int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *least, unsigned *most) {
    DEVICE(device);
    *least = (unsigned)number((int)device->index, "min_power_limit_mw", 200000);
    *most = (unsigned)number((int)device->index, "max_power_limit_mw", 700000);
    return SUCCESS;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) {
    (void)sensor;
    DEVICE(device);
    *out = (unsigned)moving((int)device->index, "temperature", 58);
    return SUCCESS;
}
typedef struct { unsigned version; int sensor, temperature; } Temperature;
int nvmlDeviceGetTemperatureV(Device *device, Temperature *out) {
    DEVICE(device);
    if (out->version != 0x100000c) return ARGUMENT_VERSION_MISMATCH;
    out->temperature = (int)moving((int)device->index, "temperature", 58);
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    DEVICE(device);
    *current = *pending = (unsigned)number((int)device->index, "mig", 0);
    return SUCCESS;
}
typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *out) {
    DEVICE(device);
    if (number((int)device->index, "mig", 0)) return NOT_SUPPORTED;
    out->gpu = (unsigned)number((int)device->index, "util", 97);
    out->memory = (unsigned)number((int)device->index, "util_memory", 55);
    return SUCCESS;
}
/* ---- what other monitors look up at start, so that they can be measured beside llmtop ---- */

GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, number(gpu, "max_pcie_gen", 5))
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, number(gpu, "max_pcie_width", 16))
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, number(gpu, "pcie_gen", 5))
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, number(gpu, "pcie_width", 16))
int nvmlDeviceGetFanSpeed(Device *device, unsigned *out) {
    (void)out;
    DEVICE(device);
    return NOT_SUPPORTED;
}
int nvmlDeviceGetTemperatureThreshold(Device *device, int which, unsigned *out) {
    (void)which;
    DEVICE(device);
    *out = 92;
    return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(Device *device, unsigned *out, unsigned *period_us) {
    DEVICE(device);
    *out = 0;
    *period_us = 167000;
    return SUCCESS;
}
int nvmlDeviceGetDecoderUtilization(Device *device, unsigned *out, unsigned *period_us) {
    DEVICE(device);
    *out = 0;
    *period_us = 167000;
    return SUCCESS;
}
/* The real one blocks for its window of 20 ms. */
int nvmlDeviceGetPcieThroughput(Device *device, int direction, unsigned *out_kb_s) {
    struct timespec window = { 0, 20000000 };
    DEVICE(device);
    nanosleep(&window, NULL);
    *out_kb_s = (unsigned)moving((int)device->index, direction ? "pcie_rx_kb_s" : "pcie_tx_kb_s", 120000);
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device *device, Memory *out) {
    DEVICE(device);
    int gpu = (int)device->index;
    if (device->instance >= 0) {
        out->total = (unsigned long long)mig_number(gpu, device->instance, "memory_total", 10603200512.0, NULL);
        out->used = (unsigned long long)mig_number(gpu, device->instance, "memory_used", 1073741824.0, NULL);
        out->free = out->total - out->used;
        return SUCCESS;
    }
    out->total = (unsigned long long)number(gpu, "memory_total", 85520809984.0);
    out->used = (unsigned long long)(number(gpu, "memory_used", 42949672960.0) + number(gpu, "memory_reserved", 456130560));
    out->free = out->total - out->used;
    return SUCCESS;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *out) {
    DEVICE(device);
    if (out->version != 0x2000028) return ARGUMENT_VERSION_MISMATCH;
    int gpu = (int)device->index;
    if (device->instance >= 0) {
        out->reserved = 0;
        out->total = (unsigned long long)mig_number(gpu, device->instance, "memory_total", 10603200512.0, NULL);
        out->used = (unsigned long long)mig_number(gpu, device->instance, "memory_used", 1073741824.0, NULL);
        out->free = out->total - out->used;
        return SUCCESS;
    }
    out->total = (unsigned long long)number(gpu, "memory_total", 85520809984.0);
    out->reserved = (unsigned long long)number(gpu, "memory_reserved", 456130560);
    out->used = (unsigned long long)number(gpu, "memory_used", 42949672960.0);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

/* ---- processes: "0.compute = 4242:1073741824 4243:na 4244:5:1", graphics alike; memory "na" is NVML's not-available
 * value, a third number the MIG instance ---- */

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
static int processes(int gpu, const char *key, unsigned *count_, ProcessInfo *out) {
    static __thread ProcessInfo found[MAX_PROCESSES];
    char value[VALUE], *save = NULL;
    unsigned n = 0;
    find(gpu, key, value);
    for (char *word = strtok_r(value, " ", &save); word && n < MAX_PROCESSES; word = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(word, ':');
        found[n].pid = (unsigned)strtoul(word, NULL, 10);
        found[n].used = colon && strncmp(colon + 1, "na", 2) ? strtoull(colon + 1, NULL, 10) : ~0ull;
        char *instance = colon ? strchr(colon + 1, ':') : NULL;
        found[n].gpu_instance = instance ? (unsigned)atoi(instance + 1) : ~0u;
        found[n].compute_instance = instance ? 0 : ~0u;
        n++;
    }
    unsigned room = *count_;
    *count_ = n;
    if (n > room) return INSUFFICIENT_SIZE;
    memcpy(out, found, n * sizeof *out);
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count_, ProcessInfo *out) {
    DEVICE(device);
    return processes((int)device->index, "compute", count_, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count_, ProcessInfo *out) {
    DEVICE(device);
    return processes((int)device->index, "graphics", count_, out);
}

/* ---- GPM ---- */

typedef struct { unsigned version, supported; } GpmSupport;
typedef struct {
    unsigned id;
    int code;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;
typedef struct {
    unsigned version, n;
    Sample *sample1, *sample2;
    GpmMetric metrics[];
} GpmRequest;
enum { GPM_DRAM = 10 };

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *out) {
    DEVICE(device);
    out->supported = (unsigned)number((int)device->index, "gpm", 1);
    return SUCCESS;
}
int nvmlGpmQueryIfStreamingEnabled(Device *device, unsigned *out) {
    DEVICE(device);
    *out = 0;
    return SUCCESS;
}
int nvmlGpmSampleAlloc(Sample **out) {
    BEGIN(-1);
    *out = calloc(1, sizeof **out);
    live_samples++;
    return SUCCESS;
}
int nvmlGpmSampleFree(Sample *sample) {
    BEGIN(-1);
    free(sample);
    live_samples--;
    return SUCCESS;
}
static const unsigned raw_ids[] = { 2, 5, 7, 12 };
enum { RAW_IDS = sizeof raw_ids / sizeof *raw_ids };
static double gpm_default(unsigned id);
/* Counters as the real driver's samples hold them, up to "raw_ms": the SMs' cycles and the shares of them. */
static void count_raw(int gpu, unsigned long long *out) {
    static struct { double ms; unsigned long long words[RAW_WORDS]; } counted[MAX_GPUS];
    double ms = number(gpu, "raw_ms", 0), passed_ms = counted[gpu].ms ? ms - counted[gpu].ms : 0;
    unsigned long long *raw = counted[gpu].words;
    if (!ms) return;
    counted[gpu].ms = ms;
    raw[RAW_TIME] = raw[RAW_TIME_COPY] = (unsigned long long)(ms * 1e6 * number(gpu, "raw_time_ratio", 1));
    double mhz = number(gpu, "sm_mhz", 1980) * number(gpu, "raw_ratio", 0.92);
    double cycles = passed_ms * 1e3 * mhz * number(gpu, "cores", 16896) / 128;
    raw[RAW_CYCLES] += (unsigned long long)cycles;
    for (unsigned i = 0; i < RAW_IDS; i++) {
        char key[KEY];
        snprintf(key, sizeof key, "gpm.%u", raw_ids[i]);
        raw[RAW_SHARES + 2 * i] += (unsigned long long)(cycles * number(gpu, key, gpm_default(raw_ids[i])) / 100);
    }
    memcpy(out, raw, sizeof counted[gpu].words);
}
int nvmlGpmSampleGet(Device *device, Sample *sample) {
    DEVICE(device);
    sample->index = device->index;
    sample->instance = -1;
    sample->t = now();
    count_raw((int)device->index, sample->raw);
    return SUCCESS;
}
int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
    DEVICE(device);
    *sample = (Sample){ device->index, (int)instance, now() };
    return SUCCESS;
}
static double gpm_default(unsigned id) {
    /* a batch-64 decode on an H100 */
    switch (id) {
        case 1: return 98.4;
        case 2: return 88.6;
        case 3: return 12.5;
        case 4: return 0.8;
        case 5: case 7: return 17.9;
        case 10: return 84.3;
        case 20: return 9.2;
        case 21: return 38.3;
        default: return 0;
    }
}
int nvmlGpmMetricsGet(GpmRequest *request) {
    if (request->version != 1) return ARGUMENT_VERSION_MISMATCH;
    if (!request->sample1 || !request->sample2) return INVALID_ARGUMENT;
    int gpu = (int)request->sample2->index;
    BEGIN(gpu);
    if (!number(gpu, "gpm", 1)) return NOT_SUPPORTED;
    double window_ms = (request->sample2->t - request->sample1->t) * 1e3;
    /* The real driver (580, H100) at 20 ms: DRAM is NaN, all else is 0.0, and every code says success. */
    int too_short = window_ms < number(gpu, "gpm_least_window_ms", 90);
    for (unsigned i = 0; i < request->n; i++) {
        GpmMetric *metric = &request->metrics[i];
        char key[KEY];
        snprintf(key, sizeof key, "gpm_code.%u", metric->id);
        metric->code = (int)number(gpu, key, metric->id >= 248 && metric->id <= 260 ? INVALID_ARGUMENT : SUCCESS);
        snprintf(key, sizeof key, "gpm.%u", metric->id);
        metric->value = moving(gpu, key, gpm_default(metric->id));
        if (request->sample2->instance >= 0)
            metric->value = mig_number(gpu, request->sample2->instance, key, metric->value, NULL);
        const unsigned long long *first = request->sample1->raw, *second = request->sample2->raw;
        for (unsigned j = 0; j < RAW_IDS; j++)
            if (raw_ids[j] == metric->id && second[RAW_CYCLES] > first[RAW_CYCLES])
                metric->value = 100.0 * (double)(second[RAW_SHARES + 2 * j] - first[RAW_SHARES + 2 * j])
                                / (double)(second[RAW_CYCLES] - first[RAW_CYCLES]);
        if (too_short) metric->value = metric->id == GPM_DRAM ? NAN : 0.0;
        metric->short_name = metric->long_name = metric->unit = NULL;
    }
    return SUCCESS;
}

/* ---- events: "0.xid = 79" with "0.xid_count = 1" delivers one XID; raise the count for another ---- */

typedef struct { Device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } EventData;
int nvmlEventSetCreate(int **out) {
    BEGIN(-1);
    *out = &the_event_set;
    live_event_sets++;
    return SUCCESS;
}
int nvmlEventSetFree(int *set) {
    (void)set;
    BEGIN(-1);
    live_event_sets--;
    return SUCCESS;
}
int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, int *set) {
    (void)types, (void)set;
    DEVICE(device);
    return SUCCESS;
}
int nvmlEventSetWait_v2(int *set, EventData *out, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    BEGIN(-1);
    for (unsigned i = 0; i < (unsigned)number(-1, "gpus", 1) && i < MAX_GPUS; i++) {
        if (number((int)i, "xid_count", 0) <= xids_delivered[i]) continue;
        xids_delivered[i]++;
        unsigned instance = (unsigned)number((int)i, "xid_instance", -1.0);
        *out = (EventData){ &devices[i], (unsigned long long)number((int)i, "event_type", 0x8),
                            (unsigned long long)number((int)i, "xid", 13), instance, instance };
        return SUCCESS;
    }
    return TIMEOUT;
}
