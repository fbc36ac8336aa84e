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

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MAX_GPUS = 64, SLOTS = 8192, KEY = 64, VALUE = 512, MAX_PROCESSES = 256, NAMES = 128 };

typedef struct { unsigned index; } Device;
typedef struct { unsigned index; double t; } Sample;
typedef struct { char key[KEY], value[VALUE]; } Entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Entry *table;
static struct stat seen;
static char seen_path[1024];
static Device devices[MAX_GPUS];
static int initialised, live_samples, live_event_sets;
static struct { const char *name; unsigned long calls; } counts[NAMES];
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

static void text(int gpu, const char *key, const char *otherwise, char *out, size_t size) {
    char value[VALUE];
    snprintf(out, size, "%s", find(gpu, key, value) ? value : otherwise);
}

/* A number that swings by the relative amplitude "wave", each GPU with its own phase, so that screens have something to draw. */
static double moving(int gpu, const char *key, double otherwise) {
    double wave = number(gpu, "wave", 0);
    return number(gpu, key, otherwise) * (1 + wave * sin(now() * 1.3 + gpu));
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

static int begin(const char *name, int gpu) {
    char key[KEY];
    const char *path = getenv("FAKE_NVML_CONTROL");
    if (!path) return LIBRARY_NOT_FOUND;
    pthread_mutex_lock(&lock);
    load(path);
    pthread_mutex_unlock(&lock);
    count(name);
    snprintf(key, sizeof key, "hang.%s", name);
    double seconds = number(gpu, key, number(-1, key, 0));
    if (seconds > 0) {
        struct timespec pause = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };
        nanosleep(&pause, NULL);
    }
    snprintf(key, sizeof key, "fail.%s", name);
    int code = (int)number(gpu, key, number(-1, key, 0));
    if (code) return code;
    if (strcmp(name, "nvmlInitWithFlags") && !initialised) return UNINITIALIZED;
    if (gpu < 0) return SUCCESS;
    if (number(gpu, "lost", 0)) return GPU_IS_LOST;
    return (int)number(gpu, "fail_all", 0);
}

#define BEGIN(gpu) do { int code_ = begin(__func__, gpu); if (code_) return code_; } while (0)
#define DEVICE(device) do { if (!(device)) return INVALID_ARGUMENT; BEGIN((int)(device)->index); } while (0)

/* ---- for tests ---- */

int fake_nvml_live_samples(void) { return live_samples; }
int fake_nvml_live_event_sets(void) { return live_event_sets; }
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
    for (unsigned i = 0; i < MAX_GPUS; i++) devices[i].index = i;
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
    BEGIN((int)index);
    if (index >= (unsigned)number(-1, "gpus", 1) || index >= MAX_GPUS) return INVALID_ARGUMENT;
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
    text((int)device->index, "name", "NVIDIA H100 80GB HBM3", out, size);
    return SUCCESS;
}
int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) {
    DEVICE(device);
    char otherwise[64];
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012u", device->index);
    text((int)device->index, "uuid", otherwise, out, size);
    return SUCCESS;
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
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, number(gpu, "energy_mj", now() * 512300))

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
    out->total = (unsigned long long)number(gpu, "memory_total", 85520809984.0);
    out->reserved = (unsigned long long)number(gpu, "memory_reserved", 456130560);
    out->used = (unsigned long long)number(gpu, "memory_used", 42949672960.0);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

/* ---- processes: "0.compute = 4242:1073741824 4243:na", graphics alike; memory "na" is NVML's not-available value ---- */

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
static int processes(int gpu, const char *key, unsigned *count_, ProcessInfo *out) {
    static __thread ProcessInfo found[MAX_PROCESSES];
    char value[VALUE], *save = NULL;
    unsigned n = 0;
    find(gpu, key, value);
    for (char *word = strtok_r(value, " ", &save); word && n < MAX_PROCESSES; word = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(word, ':');
        found[n].pid = (unsigned)strtoul(word, NULL, 10);
        found[n].used = colon && strcmp(colon + 1, "na") ? strtoull(colon + 1, NULL, 10) : ~0ull;
        found[n].gpu_instance = found[n].compute_instance = ~0u;
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
int nvmlGpmSampleGet(Device *device, Sample *sample) {
    DEVICE(device);
    sample->index = device->index;
    sample->t = now();
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
        *out = (EventData){ &devices[i], 0x8, (unsigned long long)number((int)i, "xid", 13), ~0u, ~0u };
        return SUCCESS;
    }
    return TIMEOUT;
}
