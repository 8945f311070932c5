/* A SPANK plugin with an option of each kind: what a site may add to sbatch. See spank(7).
 *
 * It declares what it uses itself, since headers of the Slurm at hand need not be installed; VERSION is that Slurm's
 * version number.
 */
typedef void *spank_t;
typedef int (*spank_opt_cb_f)(int value, const char *argument, int remote);

struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    spank_opt_cb_f cb;
};

extern int spank_option_register(spank_t spank, struct spank_option *option);

const char plugin_name[] = "demo";
const char plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
const unsigned int spank_plugin_version = 1;

static int accept_anything(int value, const char *argument, int remote)
{
    (void)value, (void)argument, (void)remote;
    return 0;
}

static struct spank_option options[] = {
    {"tunnel", "PORT", "Forward a port to the job, which takes a long help text that has to be wrapped", 1, 1, accept_anything},
    {"scratch-wipe", 0, "Empty the scratch folder", 0, 2, accept_anything},
    {"maybe-warm", "[N]", "Warm the caches, N times", 2, 3, accept_anything},
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    for (unsigned at = 0; at < sizeof options / sizeof *options; at++)
        spank_option_register(spank, &options[at]);
    return 0;
}
