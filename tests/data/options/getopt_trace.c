/* Loaded with LD_PRELOAD: writes what a program hands to getopt_long(3) and what it gets back.
 *
 * Records to $GETOPT_TRACE, fields ended by a NUL byte:  "T" optstring (name has_arg val)* ""   the table
 *                                                        "B" argc argv...                       a run begins
 *                                                        "O" value optarg-or-"-"/"+"text        an option came back
 *                                                        "E" optind                             the run ended
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*getopt_f)(int, char *const *, const char *, const struct option *, int *);

static FILE *out;

static void field(const char *text) { fputs(text, out); fputc(0, out); }
static void number(int value) { char text[32]; snprintf(text, sizeof text, "%d", value); field(text); }

static void begin(int argc, char *const *argv, const char *letters, const struct option *table)
{
    field("T"); field(letters);
    for (; table && table->name; table++) { field(table->name); number(table->has_arg); number(table->val); }
    field("");
    field("B"); number(argc);
    for (int i = 0; i < argc; i++) field(argv[i]);
}

int getopt_long(int argc, char *const *argv, const char *letters, const struct option *table, int *index)
{
    static getopt_f real;
    static int running;
    const char *path = getenv("GETOPT_TRACE");
    if (!real) real = (getopt_f)dlsym(RTLD_NEXT, "getopt_long");
    if (path && !out) out = fopen(path, "a");
    if (out && (!running || optind == 0)) { begin(argc, argv, letters, table); running = 1; }
    int value = real(argc, argv, letters, table, index);
    if (out) {
        if (value == -1) { field("E"); number(optind); running = 0; }
        else { field("O"); number(value); fputc(optarg ? '+' : '-', out); field(optarg ? optarg : ""); }
        fflush(out);
    }
    return value;
}
