import "./base.css";
import "./job.css";
